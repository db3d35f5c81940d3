"""The tools that give pages files, print them and drag in them, over an application with a fake broker."""

from __future__ import annotations

import base64

import pytest
from tests.edge.fake_broker import FakeBroker

from tabherd import wire

from .speaker import Speaker


@pytest.fixture
async def ada(alice: Speaker) -> Speaker:
    """An open MCP session with a leased tab."""
    await alice.open()
    await alice.text("browser_lease")
    return alice


async def test_a_page_is_given_files_by_name(ada: Speaker, broker: FakeBroker) -> None:
    broker.commands.result = ["a.txt", "b.txt"]
    assert await ada.text("browser_upload", selector="#a", files=["a.txt", "b.txt"]) == "Given: a.txt, b.txt."
    broker.commands.result = []
    assert await ada.text("browser_upload", selector="#a", files=[]) == "Given: nothing."


async def test_an_element_is_dragged_onto_another(ada: Speaker, broker: FakeBroker) -> None:
    assert await ada.text("browser_drag", **{"from": "#a", "to": "ref=abc1"}) == "Dragged."
    (action,) = broker.commands.actions
    assert isinstance(action, wire.Drag)
    assert (action.from_, action.to) == ("#a", "ref=abc1")


async def test_a_printed_page_becomes_a_file_of_the_session(root: Speaker, broker: FakeBroker) -> None:
    await root.open()
    await root.text("browser_lease")
    broker.commands.result = base64.b64encode(b"%PDF-1.4").decode()
    assert await root.text("browser_pdf", pages="1-2") == "Printed as 'page.pdf', 8 bytes, a file of ses_1."
    assert broker.files.contents == {"page.pdf": b"%PDF-1.4"}
