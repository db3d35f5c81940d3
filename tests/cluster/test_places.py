"""Where things are: rows decide, what was found is remembered, and what moves is looked up anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tabherd.cluster.peer import Peer
from tabherd.cluster.places import Kind, Places
from tabherd.core.lifecycle import LeaseState, TabState
from tabherd.core.model import Node, Row, Session, Tab
from tabherd.errors import NodeUnreachable
from tabherd.store.base import Put
from tabherd.store.memory import MemoryStore


class House:
    """One node, `nod_1`, and a peer with epoch 7."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.here: set[tuple[Kind, str]] = set()
        membership: Any = SimpleNamespace(peers={"nod_2": Peer("nod_2", 7, "http://two.test")})
        self.places = Places(
            node=Node(id="nod_1", epoch=3, url="", pid=1, started_at=1),
            store=self.store,
            membership=membership,
            is_here=lambda kind, id: (kind, id) in self.here,
            epoch_of=lambda id: int(id.removeprefix("cmd_")),
        )

    async def put(self, *rows: Row) -> None:
        await self.store.apply(*map(Put, rows))


def session(node_id: str, state: LeaseState = LeaseState.ACTIVE) -> Session:
    return Session(id="ses_1", state=state, agent_id="ada", pool="default", node_id=node_id)


@pytest.fixture
def house() -> House:
    return House()


async def test_a_session_is_where_its_row_says(house: House) -> None:
    await house.put(
        session("nod_2"), Tab(id="tab_1", session_id="ses_1", node_id="nod_2", browser_id="", state=TabState.READY)
    )
    assert await house.places.node_of("session", "ses_1") == "nod_2"
    assert await house.places.node_of("tab", "tab_1") == "nod_2"


async def test_what_this_node_has_costs_no_look(house: House) -> None:
    house.here.add(("tab", "tab_1"))
    await house.store.close()
    assert await house.places.node_of("tab", "tab_1") == "nod_1"


async def test_what_was_found_is_remembered_until_it_was_not_there(house: House) -> None:
    await house.put(session("nod_2"))
    await house.places.node_of("session", "ses_1")
    await house.put(session("nod_3"))
    assert await house.places.node_of("session", "ses_1") == "nod_2"
    house.places.forget("session", "ses_1")
    assert await house.places.node_of("session", "ses_1") == "nod_3"


async def test_what_a_node_had_that_is_over_is_looked_up_anew(house: House) -> None:
    await house.put(session("nod_2"))
    await house.places.node_of("session", "ses_1")
    await house.put(session("nod_3"))
    house.places.keep_only({"nod_3"})
    assert await house.places.node_of("session", "ses_1") == "nod_3"


@pytest.mark.parametrize("state", [None, LeaseState.CLOSED, LeaseState.LOST])
async def test_what_nobody_has_is_answered_here(house: House, state: LeaseState | None) -> None:
    if state is not None:
        await house.put(session("nod_2", state))
    assert await house.places.node_of("session", "ses_1") == "nod_1"


async def test_what_is_being_recovered_here_is_not_taken_for_gone(house: House) -> None:
    await house.put(session("nod_1", LeaseState.RECOVERING))
    with pytest.raises(NodeUnreachable):
        await house.places.node_of("session", "ses_1")


@pytest.mark.parametrize(("command", "node"), [("cmd_7", "nod_2"), ("cmd_3", "nod_1"), ("cmd_5", "nod_1")])
async def test_a_command_is_at_the_node_whose_epoch_it_carries_while_that_lives(
    house: House, command: str, node: str
) -> None:
    assert await house.places.node_of("command", command) == node
