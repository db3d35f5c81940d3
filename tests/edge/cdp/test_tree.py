"""The sessions of one client, found by either form of their ids."""

from __future__ import annotations

from tabherd.edge.cdp.rules import Kind
from tabherd.edge.cdp.tree import Node, Tree


def tree() -> tuple[Tree, Node, Node]:
    root, page = Node(Kind.ROOT, "", "", "", ""), Node(Kind.PAGE, "S1", "", "T1", "T1")
    found = Tree(root)
    found.add(page)
    return found, root, page


def test_the_connection_itself_has_the_empty_id() -> None:
    nodes, root, _ = tree()
    assert nodes.find("") is root
    assert nodes.find_by_bytes(b"") is root


def test_a_session_is_found_as_text_and_as_bytes() -> None:
    nodes, _, page = tree()
    assert nodes.find("S1") is page
    assert nodes.find_by_bytes(b"S1") is page


def test_a_session_that_is_over_is_not_found() -> None:
    nodes, root, page = tree()
    assert nodes.remove("S1") is page
    assert nodes.find("S1") is None
    assert nodes.find_by_bytes(b"S1") is None
    assert list(nodes) == [root]


def test_removing_what_is_not_there_changes_nothing() -> None:
    nodes, root, page = tree()
    assert nodes.remove("S2") is None
    assert list(nodes) == [root, page]


def test_sessions_may_end_while_they_are_looked_through() -> None:
    nodes, _, _ = tree()
    for node in nodes:
        nodes.remove(node.session_id)
    assert list(nodes) == []
