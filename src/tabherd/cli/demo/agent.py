"""One agent of the demo: leases a session, logs in as itself, writes lines, reads them back, gives the session back.

It knows only the client and the site, and tells everything that it does and hears. Each command has a key of its own,
so a broken connection never makes it act twice; after an outcome that nobody knows it looks at its page before it goes
on, and writes under a new id. Run as a program, it is an agent in a process of its own that can be killed: its orders
are the first line that it reads, it ends with the second or with the end of its input, and tells in lines of JSON.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

import msgspec

from ...client.aio import AsyncSession, AsyncTabherd
from ...errors import LeaseLost, OutcomeUnknown, TabherdError, TimedOut
from .record import BOARD, Answer, Granted, Left, Line, Mishap, Phase, Reading, Told, now_ms
from .site import board_url, desk_url, login_url

# How long a server that is being started again is waited for.
PATIENCE_S: Final = 30.0
# Queue and work of one command; a page that was replaced meanwhile is noticed after this.
COMMAND_LIMIT_MS: Final = 8_000
ELEMENT_LIMIT_MS: Final = 3_000
# Lines of one visit, and how often one that goes wrong is tried anew before the visit is over.
LINES: Final = (1, 4)
TRIES_MAX: Final = 10
TURNS: Final = 2
# How long a command works in the page, and how long an agent thinks, in milliseconds.
WORK_MS: Final = (40, 160)
TURN_MS: Final = (15, 40)
THINK_MS: Final = (80, 240)
# What it does between two commands.
THINKS: Final = "thinks"
# null: this is not the page that the agent left, because that one died.
WORK: Final = "async (...claim) => typeof work === 'function' ? await work(...claim) : null"


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told when it starts."""

    agent: str
    token: str
    server_url: str
    site_url: str
    seed: int
    # The tab that several agents share; empty: this one is not among them.
    board_tab: str = ""
    # Its process is the proof that it lives, and its pages tell that they live.
    is_process: bool = False
    # The number of its first visit: an agent that is started anew goes on counting.
    first_visit: int = 1


class Agent:
    """An agent, for as long as the demo lasts."""

    def __init__(self, orders: Orders, tell: Callable[[Told], None], over: asyncio.Event) -> None:
        self._orders = orders
        self._name = orders.agent
        self._tell = tell
        # Set when the demo ends: what the agent has begun it still finishes.
        self._over = over
        self._chance = random.Random(f"{orders.seed}/{orders.agent}/{orders.first_visit}")
        self._herd: AsyncTabherd

    async def live(self) -> None:
        """Visit after visit, until it is over."""
        orders = self._orders
        async with AsyncTabherd(orders.server_url, orders.token, patience_s=PATIENCE_S) as self._herd:
            number = orders.first_visit
            while not self._over.is_set():
                await self._visit(f"{self._name}.{number}")
                if orders.board_tab:
                    await self._take_turns()
                await self._think()
                number += 1
        self._do("has gone")

    # --- A visit ------------------------------------------------------------------------------------------------

    async def _visit(self, visit: str) -> None:
        self._do("waits for a tab")
        wanted_ms = now_ms()
        session = self._herd.session(owner=os.getpid() if self._orders.is_process else None)
        try:
            async with session:
                tab = session.tab.id
                granted = Granted(
                    agent=self._name, visit=visit, session=session.id, tab=tab, wanted_ms=wanted_ms, at_ms=now_ms()
                )
                self._tell(granted)
                try:
                    await self._work_at_desk(session, visit)
                finally:
                    self._tell(Left(agent=self._name, visit=visit, at_ms=now_ms()))
        except TabherdError as error:
            self._met(error)

    async def _work_at_desk(self, session: AsyncSession, visit: str) -> None:
        orders, left = self._orders, self._chance.randint(*LINES)
        login = login_url(orders.site_url, self._name, visit, has_pulse=orders.is_process)
        desk = desk_url(orders.site_url, self._name, visit, has_pulse=orders.is_process)
        # Where to go next; empty: nowhere, the page is the one it should be.
        going = login
        for number in range(1, TRIES_MAX + 1):
            try:
                if going:
                    self._do("logs in" if going is login else "comes back")
                    await self._command(session, visit, "navigate", url=going)
                    going = ""
                if not left:
                    break
                match await self._write(session, visit, f"{visit}.{number}"):
                    case None:
                        going = desk
                    case who if who != self._name:
                        # The login is gone with the browser that had it.
                        going = login
                    case _:
                        left -= 1
                        await self._think()
            except LeaseLost:
                raise
            except TabherdError as error:
                self._met(error)
                going = desk
        self._do("reads back")
        text = await self._command(session, visit, "text", selector="#log")
        self._tell(Reading(agent=self._name, visit=visit, ids=str(text).split()))

    async def _write(self, session: AsyncSession, visit: str, line: str) -> str | None:
        """Write one line; answers who the page says is logged in, or None when it is not the page it should be."""
        self._do("works")
        claim = [self._name, visit, session.tab.id, uuid4().hex, self._chance.randint(*WORK_MS)]
        if await self._command(session, visit, "evaluate", expression=WORK, args=claim) is None:
            return None
        who = str(await self._command(session, visit, "text", selector="#who"))
        if who == self._name:
            self._do("adds a line")
            await self._command(session, visit, "fill", selector="#line", value=line)
            await self._command(session, visit, "click", selector="#add")
            await self._command(session, visit, "wait", selector=f'[id="{line}"]', timeout_ms=ELEMENT_LIMIT_MS)
            self._tell(Line(agent=self._name, visit=visit, id=line))
        return who

    # --- The board ----------------------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        """Work on the tab that others work on, too; the server says whose turn it is."""
        tab = self._orders.board_tab
        for _ in range(TURNS):
            self._do("waits for board")
            mark = uuid4().hex
            claim = [self._name, BOARD, tab, mark, self._chance.randint(*TURN_MS)]
            try:
                done = await self._send(tab, BOARD, "evaluate", mark=mark, expression=WORK, args=claim)
                if done is None:
                    await self._send(tab, BOARD, "navigate", url=board_url(self._orders.site_url))
            except TabherdError as error:
                self._met(error)

    # --- Commands -----------------------------------------------------------------------------------------------

    async def _command(self, session: AsyncSession, visit: str, kind: str, **params: Any) -> Any:
        """Run a command on the session's tab, as its holder."""
        return await self._send(session.tab.id, visit, kind, session_id=session.id, fence=session.fence, **params)

    async def _send(
        self, tab: str, visit: str, kind: str, *, mark: str = "", timeout_ms: int = COMMAND_LIMIT_MS, **params: Any
    ) -> Any:
        """Run a command and tell how it ended; its result, or its typed error."""
        sent_ms = now_ms()
        fixed = {"wait_policy": "wait_with_timeout", "idempotency_key": uuid4().hex, "timeout_ms": timeout_ms}
        try:
            view = await self._herd.act(tab, kind, **fixed, **params)
        except TabherdError as error:
            command = str(error.details.get("commandId", ""))
            self._heard(visit, kind, command, outcome_of(error) if command else error.code, sent_ms, mark)
            raise
        self._heard(visit, kind, view.command_id, view.outcome, sent_ms, mark)
        return view.result

    def _heard(self, visit: str, kind: str, command: str, outcome: str, sent_ms: float, mark: str) -> None:
        times = {"sent_ms": sent_ms, "heard_ms": now_ms()}
        self._tell(
            Answer(agent=self._name, visit=visit, kind=kind, command=command, outcome=outcome, mark=mark, **times)
        )

    def _do(self, doing: str) -> None:
        self._tell(Phase(agent=self._name, doing=doing))

    def _met(self, error: TabherdError) -> None:
        self._tell(Mishap(agent=self._name, code=error.code, at_ms=now_ms()))

    async def _think(self) -> None:
        self._do(THINKS)
        await asyncio.sleep(self._chance.randint(*THINK_MS) / 1000)


def outcome_of(error: TabherdError) -> str:
    """The outcome of an accepted command that is heard of as this error."""
    match error:
        case OutcomeUnknown():
            return "outcome_unknown"
        case TimedOut():
            return "timed_out"
        case LeaseLost():
            return "cancelled"
        case _:
            return "failed"


# --- As a process -------------------------------------------------------------------------------------------------


def main() -> None:
    """Be an agent in a process of its own."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    asyncio.run(_live(orders))


async def _live(orders: Orders) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        # Whatever it is, it is the end; so is the death of whoever started this.
        loop.remove_reader(sys.stdin)
        over.set()

    loop.add_reader(sys.stdin, on_input)
    await Agent(orders, _print, over).live()


def _print(told: Told) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
