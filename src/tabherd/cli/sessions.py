"""`session`: leasing, listing and ending sessions.

A session that is leased here outlives this command: nothing beats for it, so it lives by its pool's idle time, or as
long as `--keep-alive` or `--owner-pid` say.
"""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime
from itertools import count
from random import random
from time import monotonic, sleep
from typing import Any, Final

from .. import wire
from ..client.patience import wait_before_retry
from ..client.sync import Tabherd
from ..errors import TabherdError
from .output import Tell, Voice, one_line

VIEWPORT: Final = re.compile(r"(?P<width>\d+)x(?P<height>\d+)(@(?P<scale>\d+(\.\d+)?))?")
# How often a person who waits for a place is told how things stand.
WATCH_EVERY_S: Final = 1.0
HEADINGS: Final = ("session", "agent", "state", "pool", "key", "fence", "expires", "phase", "tabs")
MINUTE_S: Final = 60
HOUR_S: Final = 3_600


def new(voice: Voice, fields: dict[str, Any], *, wait_s: float, quiet: bool) -> None:
    """Lease one and print it, or only its tab. Refusals that say when to come back are waited out for `wait_s`."""
    with Tabherd(patience_s=0) as herd, voice.progress("Leasing a session") as tell:
        over = threading.Event()
        if voice.shows_progress:
            threading.Thread(target=_watch_the_queue, args=(fields, over, tell), daemon=True).start()
        try:
            session = _leased(herd, fields, wait_s, tell if voice.shows_progress else lambda told: voice.note([told]))
        finally:
            over.set()
    tab_ids = " ".join(tab.tab_id for tab in session.tabs)
    text = f"{session.session_id} for {session.agent_id}, fence {session.fence}, until {session.expires_at}"
    voice.answer(session, session.tabs[0].tab_id if quiet else f"{text}\n{tab_ids}")


def ls(voice: Voice, *, agent: str | None, state: str | None) -> None:
    """In a pipe one line per session; on a terminal its tabs below it, each line within the width."""
    with Tabherd(patience_s=0) as herd:
        sessions = herd.sessions(agent=agent, state=state)
    if voice.width is not None and sessions:
        for line in _listing(sessions, voice.width, datetime.now(UTC)):
            voice.say(line)
        return
    voice.table(wire.SessionPage(sessions=sessions), HEADINGS, [_row(each) for each in sessions], empty="No sessions.")


def end(voice: Voice, session_id: str, fence: int | None, disposition: str | None) -> None:
    """Give it back."""
    with Tabherd(patience_s=0) as herd:
        herd.end_session(session_id, fence, disposition)
    voice.answer({"ended": session_id}, f"Ended {session_id}.")


def parse_viewport(text: str) -> wire.Viewport:
    """`1280x720`, `390x844@3`; raises ValueError for what is none. Whether the size is allowed is for the server."""
    found = VIEWPORT.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is not WIDTHxHEIGHT or WIDTHxHEIGHT@SCALE.")
    return wire.Viewport(
        width=int(found["width"]), height=int(found["height"]), device_scale_factor=float(found["scale"] or 1)
    )


def _leased(herd: Tabherd, fields: dict[str, Any], wait_s: float, tell: Tell) -> wire.SessionView:
    began_s = monotonic()
    for attempt in count():
        try:
            return herd.session(**fields).open().view
        except TabherdError as error:
            pause_s = wait_before_retry(error, attempt, monotonic() - began_s, wait_s, random())
            # A server that is not there names no time, and is not waited for.
            if pause_s is None or error.retry_after_ms is None:
                raise
            if attempt == 0:
                tell(f"{error.message} Trying again for up to {wait_s:g} s (--wait).")
        sleep(pause_s)
    raise AssertionError("it is leased or refused")


def _watch_the_queue(fields: dict[str, Any], over: threading.Event, tell: Tell) -> None:
    """Say where this caller stands for as long as it waits."""
    pool, key = fields["pool"] or "default", fields["key"] or ""
    # As the same agent: the server tells each agent only its own places.
    with Tabherd(patience_s=0, agent=fields["agent"]) as herd:
        while not over.wait(WATCH_EVERY_S):
            try:
                stats = herd.stats().pools.get(pool)
            except TabherdError:
                # Who waits hears from the request itself what is wrong; here is nothing more to tell.
                return
            if stats is not None and stats.waiting:
                tell(_waiting(pool, key, stats))


def _waiting(pool: str, key: str, stats: wire.PoolStats) -> str:
    # Of several callers of one agent and key the last to come is this one, as far as it can be told.
    own = [waiter for waiter in stats.waiters if waiter.key == key]
    place = f"number {own[-1].position} of {stats.waiting} in line" if own else f"{stats.waiting} in line"
    expected = f", about {own[-1].expected_wait_ms / 1000:.0f} s" if own else ""
    return f"Waiting for pool {pool} ({stats.active} of {stats.capacity} taken): {place}{expected}"


def _row(session: wire.SessionView) -> tuple[str, ...]:
    return (
        session.session_id,
        session.agent_id,
        session.state,
        session.pool,
        session.key,
        str(session.fence),
        session.expires_at,
        session.phase,
        " ".join(f"{tab.tab_id} {tab.url}" for tab in session.tabs),
    )


def _listing(sessions: list[wire.SessionView], width: int, now: datetime) -> list[str]:
    rows = [("session", "agent", "state", "fence", "ends in", "key", "phase")]
    rows += [
        (
            *(each.session_id, each.agent_id, each.state, str(each.fence), _left(each.expires_at, now)),
            *(one_line(each.key), one_line(each.phase)),
        )
        for each in sessions
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    heading, *lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    shown = [_cut(heading, width)]
    for session, line in zip(sessions, lines, strict=True):
        shown.append(_cut(line, width))
        shown += (_cut(f"  {tab.tab_id}  {one_line(tab.url)}", width) for tab in session.tabs)
    return shown


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _left(until: str, now: datetime) -> str:
    """The time from now, in the two largest units."""
    seconds = int((datetime.fromisoformat(until) - now).total_seconds())
    if seconds <= 0:
        return "-"
    if seconds < MINUTE_S:
        return f"{seconds}s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S}m{seconds % MINUTE_S:02}s"
    return f"{seconds // HOUR_S}h{seconds % HOUR_S // MINUTE_S:02}m"
