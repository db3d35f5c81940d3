"""What a client sends while its node does not trust itself: kept in order, never passed on before its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.virtual_loop import VirtualLoop

from tabherd.edge.cdp.distrust import WAITING_MAX, Distrust


class Client:
    """A client's socket, and its node's trust in itself."""

    def __init__(self) -> None:
        self.is_trusted = True
        self.arrived: list[bytes] = []
        self.is_held = False
        self.is_cut_off = False
        self.distrust = Distrust(
            lambda: self.is_trusted,
            receive=self.send,
            hold=self._hold,
            cut_off=lambda: setattr(self, "is_cut_off", True),
        )

    def send(self, data: bytes) -> None:
        if not self.distrust.keeps(data):
            self.arrived.append(data)

    def _cut_off(self) -> None:
        self.is_cut_off = True

    def _hold(self, is_held: bool) -> None:
        self.is_held = is_held


def virtually(play: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def scene() -> None:
            await play(Client())

        runner.run(scene())


def test_messages_pass_at_once_while_it_trusts_itself() -> None:
    async def play(client: Client) -> None:
        client.send(b"1")
        assert (client.arrived, client.is_held) == ([b"1"], False)

    virtually(play)


def test_messages_wait_in_order_and_the_socket_is_read_no_further() -> None:
    async def play(client: Client) -> None:
        client.is_trusted = False
        client.send(b"1")
        client.send(b"2")
        await asyncio.sleep(30)
        assert (client.arrived, client.is_held) == ([], True)
        client.is_trusted = True
        # It is noticed a moment later, and nothing overtakes what has waited.
        client.send(b"3")
        assert client.arrived == []
        await asyncio.sleep(1)
        assert (client.arrived, client.is_held) == ([b"1", b"2", b"3"], False)

    virtually(play)


def test_trust_that_is_lost_again_while_they_go_on_keeps_the_rest() -> None:
    async def play(client: Client) -> None:
        client.is_trusted = False
        for data in (b"1", b"2", b"3"):
            client.send(data)
        looks = iter([True, True, False, False])
        client.distrust._is_trusted = lambda: next(looks, client.is_trusted)
        await asyncio.sleep(1)
        assert client.arrived == [b"1"]
        client.is_trusted = True
        await asyncio.sleep(1)
        assert client.arrived == [b"1", b"2", b"3"]

    virtually(play)


def test_nothing_goes_on_after_the_end() -> None:
    async def play(client: Client) -> None:
        client.is_trusted = False
        client.send(b"1")
        client.distrust.close()
        client.is_trusted = True
        await asyncio.sleep(5)
        assert client.arrived == []

    virtually(play)


def test_who_sends_more_than_is_kept_is_cut_off() -> None:
    async def play(client: Client) -> None:
        client.is_trusted = False
        for _ in range(WAITING_MAX):
            client.send(b"{}")
        assert not client.is_cut_off
        client.send(b"{}")
        assert client.is_cut_off

    virtually(play)
