"""`tabherd demo`, from no directory to no directory: begins everything, lets the story happen, recounts, ends all.

Whatever was started is ended, in whichever way the demo ends: by its last act, by an error, by Ctrl-C, by SIGTERM or by
the terminal that is closed. A second signal does not hurry it: ending is short, and half an end would leave things.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import msgspec

from ... import logs, wire
from ...client.aio import AsyncSession, AsyncTabherd
from ...errors import CommandNotFound, TabherdError
from ..output import Voice
from .agent import Orders
from .crowd import Crowd
from .own_server import OwnServer, still_running
from .record import Answer, Record, Remains, Told
from .recount import recount
from .show import Quiet, show_verdicts, stage_for
from .site import Site, board_url
from .story import Story
from .verdict import Verdict
from .watch import Watch

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Agents that are processes of their own, so that they can be killed; and every so manieth shares the board.
PROCESSES: Final = 2
SHARES_BOARD: Final = 4
HOST: Final = "host"
# How often the tabs are looked at for the picture.
LOOK_S: Final = 0.25
# Commands that are asked for at once, at the end.
ASK_AT_ONCE: Final = 16
# How long sessions that nobody claims may take to end by themselves.
LEASES_LIMIT_S: Final = 20.0
LEASES_POLL_S: Final = 0.1


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo was asked to be."""

    agents: int
    tabs: int
    seconds: float
    seed: int
    has_crashes: bool


class Answered(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The one document of `--json`."""

    held: bool
    agents: int
    tabs: int
    seconds: float
    seed: int
    guarantees: list[Verdict]
    # What was narrated, and after how many milliseconds.
    story: list[tuple[int, str]]


def run(voice: Voice, wish: Wish) -> bool:
    """Give the demo; whether every guarantee held. Interrupted, it raises KeyboardInterrupt after it has tidied up."""
    # What cleaning up logs is for those who run a server; here it would be in the way of what is told.
    logs.configure(level="error")
    names = [f"a{number:02}" for number in range(1, wish.agents + 1)]
    stage = stage_for(names, wish.tabs, as_json=voice.as_json)
    try:
        record = asyncio.run(_until_signalled(wish, names, stage))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    verdicts = recount(record)
    held = all(each.held for each in verdicts)
    if voice.as_json:
        answer = Answered(
            held=held,
            agents=wish.agents,
            tabs=wish.tabs,
            seconds=wish.seconds,
            seed=wish.seed,
            guarantees=verdicts,
            story=stage.said,
        )
        voice.dump(answer)
    else:
        voice.say("")
        show_verdicts(verdicts)
    return held


async def _until_signalled(wish: Wish, names: list[str], stage: Quiet) -> Record:
    """The demo; the first signal cancels it, and later ones change nothing."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "this runs in a task"
    signalled = False

    def on_signal() -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            stage.say("Interrupted: ending everything that was started.")
            task.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal)
    with Site() as site, stage:
        server = OwnServer(wish.tabs)
        try:
            return await _give(wish, names, stage, site, server)
        finally:
            await server.close()


async def _give(wish: Wish, names: list[str], stage: Quiet, site: Site, server: OwnServer) -> Record:
    stage.say(f"A server of the demo's own starts, with room for {wish.tabs} tabs in two browsers.")
    await server.start()
    stage.say(f"It is ready at {server.url}; {wish.agents} agents want those {wish.tabs} tabs. Seed {wish.seed}.")
    told: list[Told] = []

    def hear(each: Told) -> None:
        told.append(each)
        stage.hear(each)

    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(AsyncTabherd(server.url, server.admin_token))
        host = await stack.enter_async_context(AsyncTabherd(server.url, (await admin.new_token(HOST)).token))
        watch = await stack.enter_async_context(Watch(admin))
        board = await host.session(access="shared", keep_alive=True, url=board_url(site.url)).open()
        orders = [await _orders(wish, admin, site, number, name, board) for number, name in enumerate(names)]
        looking = asyncio.create_task(_look(server, stage.look), name="look")
        stack.callback(looking.cancel)
        async with Crowd(orders, hear) as crowd:
            await crowd.start()
            story = Story(server, admin, crowd, watch, stage.say)
            await story.tell(wish.seconds, has_crashes=wish.has_crashes)
        await board.close()
        leases = await _leases(admin)
        stage.say("Everybody has gone. The record is recounted.")
        audit = [(each.command_id, each.detail) for each in await admin.audit() if each.command_id is not None]
        heard = {each.command for each in told if isinstance(each, Answer) and each.command}
        outcomes = await _outcomes(admin, heard | {command for command, _ in audit})
    before = server.processes()
    await server.stop()
    remains = Remains(
        processes_before=len(before),
        processes_after=len(still_running(before) | server.processes()),
        leases=leases,
        directories=len(server.leftover_directories()),
    )
    return Record(
        agents=names,
        cap=wish.tabs,
        board_session=board.id,
        hits=site.hits,
        told=told,
        happenings=watch.happenings,
        audit=audit,
        outcomes=outcomes,
        remains=remains,
        agent_death=story.agent_death,
        browser_death=story.browser_death,
        broker_death=story.broker_death,
    )


async def _orders(wish: Wish, admin: AsyncTabherd, site: Site, number: int, name: str, board: AsyncSession) -> Orders:
    """What this agent is told; it has a credential of its own."""
    return Orders(
        agent=name,
        token=(await admin.new_token(name)).token,
        server_url=admin.url,
        site_url=site.url,
        seed=wish.seed,
        board_tab=board.tab.id if number % SHARES_BOARD == 0 else "",
        is_process=number >= wish.agents - PROCESSES,
    )


async def _look(server: OwnServer, see: Callable[[Sequence[wire.TabView]], None]) -> None:
    """Look at the tabs again and again; a server that is just dead is looked at later."""
    async with AsyncTabherd(server.url, server.admin_token, patience_s=0) as herd:
        while True:
            with suppress(TabherdError):
                see(await herd.tabs())
            await asyncio.sleep(LOOK_S)


async def _leases(admin: AsyncTabherd) -> int:
    """Sessions that are still open, once those that nobody claims have had their time to end."""
    for _ in range(round(LEASES_LIMIT_S / LEASES_POLL_S)):
        active = sum(pool.active for pool in (await admin.stats()).pools.values())
        if not active:
            break
        await asyncio.sleep(LEASES_POLL_S)
    return active


async def _outcomes(admin: AsyncTabherd, commands: set[str]) -> dict[str, str]:
    """What the server answers when it is asked how each of these ended."""
    places = asyncio.Semaphore(ASK_AT_ONCE)

    async def ask(command: str) -> tuple[str, str]:
        async with places:
            try:
                return command, (await admin.command(command)).outcome
            except CommandNotFound as error:
                return command, error.code

    return dict(await asyncio.gather(*map(ask, sorted(commands))))
