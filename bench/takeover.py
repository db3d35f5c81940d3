"""`takeover`: how long after a violent end the capacity is usable again.

- The *owner*'s process killed: until the caller that waited for the only place there is has a page that answers. 2 s of
  it are the grace in which a successor of the process may still keep the session.
- *Chromium* killed, or stopped (it lives but answers nobody): until a new session can be used; and killed under
  sessions that are logged in: until each of them answers again in its old tab, and is still logged in.
- The *broker* killed with sessions open: until every page of every session answers with what it was told before. The
  broker stopped in order, which ends its browsers: until every session is back in another one, still logged in.
- One of two *nodes* on one PostgreSQL killed with its browsers, as by a power cut: until each of its sessions that are
  logged in answers at the other node in its old tab, and is still logged in. 10 s of it are how long it may be silent
  before others may act.

Each death of a Chromium happens to a fresh server, so that its circuit breaker never counts two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Final

from bench import Figure
from bench.rig.caller import Caller, Opened, Refused, now_ms
from bench.rig.nodes import node_id, running_nodes
from bench.rig.postgres import running_postgres
from bench.rig.server import Server, imports_s, running
from bench.rig.site import LOGIN, greeting, small_page
from bench.rig.waiter import Waiter

OWNERS: Final = 5
KILLS: Final = 7
STOPS: Final = 5
RESTARTS: Final = 5
LOGIN_KILLS: Final = 3
SESSIONS: Final = 50
LOGINS: Final = 20
# Browsers are killed once the warm stock is full and nothing else goes on.
SETTLE_S: Final = 1.0
# Until callers give up on being served at all.
GIVE_UP_S: Final = 60.0
BAR_OWNER_S: Final = 2.5
BAR_KILLED_S: Final = 1.0
BAR_STOPPED_S: Final = 4.0
BAR_BROKER_S: Final = 2.0
NODE_KILLS: Final = 3
# The time between two beats of a node.
BEAT_S: Final = 3.0
# How often a caller asks again that is told that there is nothing yet.
ASK_AGAIN_S: Final = 0.05
BAR_NODE_S: Final = 12.0


def run() -> dict[str, Figure]:
    owners = _after_owner_kills()
    # At different moments between two probes, which come every second.
    killed = [_after(signal.SIGKILL, SETTLE_S + turn / KILLS) for turn in range(KILLS)]
    stopped = [_after(signal.SIGSTOP, SETTLE_S + turn / STOPS) for turn in range(STOPS)]
    with small_page() as site:
        recovered = [_after_kill_under_logins(site) for _ in range(LOGIN_KILLS)]
        stops, kept = _after_broker_stops(site)
        # At different moments between two beats.
        nodes = [_after_node_kill(site, SETTLE_S + BEAT_S * turn / NODE_KILLS) for turn in range(NODE_KILLS)]
    ready, answering = _after_broker_kills()
    imports = {"starting Python and importing": [imports_s() for _ in range(RESTARTS)]}
    return {
        "owner_killed": Figure.median_of(owners, "s", at_most=BAR_OWNER_S),
        "owner_killed_max": Figure(ours=max(owners), unit="s", at_most=BAR_OWNER_S),
        "chromium_killed": Figure.median_of(killed, "s", at_most=BAR_KILLED_S),
        "chromium_killed_max": Figure(ours=max(killed), unit="s", at_most=BAR_KILLED_S),
        f"chromium_killed_first_of_{LOGINS}_logins": Figure.median_of([first for first, _ in recovered], "s"),
        f"chromium_killed_all_{LOGINS}_logins": Figure.median_of([last for _, last in recovered], "s"),
        "chromium_stopped": Figure.median_of(stopped, "s", at_most=BAR_STOPPED_S),
        "chromium_stopped_max": Figure(ours=max(stopped), unit="s", at_most=BAR_STOPPED_S),
        f"broker_killed_{SESSIONS}_answer": Figure.median_of(answering, "s", others=imports, at_most=BAR_BROKER_S),
        f"broker_killed_{SESSIONS}_answer_max": Figure(ours=max(answering), unit="s", at_most=BAR_BROKER_S),
        f"broker_killed_{SESSIONS}_ready": Figure.median_of(ready, "s"),
        f"broker_stop_with_{LOGINS}_logins": Figure.median_of(stops, "s"),
        f"broker_stopped_all_{LOGINS}_logins": Figure.median_of(kept, "s", others=imports),
        f"node_killed_first_of_{LOGINS}_logins": Figure.median_of([first for first, _ in nodes], "s"),
        f"node_killed_all_{LOGINS}_logins": Figure.median_of([last for _, last in nodes], "s", at_most=BAR_NODE_S),
        f"node_killed_all_{LOGINS}_logins_max": Figure(
            ours=max(last for _, last in nodes), unit="s", at_most=BAR_NODE_S
        ),
    }


# --- The owner ----------------------------------------------------------------------------------------------------


def _after_owner_kills() -> list[float]:
    """Seconds from the kill to the first answer of a page in the session of the one who waited."""
    samples: list[float] = []
    with running(pools__default__max_active=1) as server, server.caller() as caller, Waiter(server) as waiter:
        for _ in range(OWNERS):
            owner = subprocess.Popen(["sleep", "600"])
            try:
                caller.evaluate(caller.open(owner={"pid": owner.pid}).tab_id)
                waiter.wait()
                time.sleep(SETTLE_S)
                began = now_ms()
                owner.kill()
                _, had_ms = waiter.taken()
            finally:
                owner.kill()
                owner.wait()
            samples.append((had_ms - began) / 1000)
            waiter.give_back()
    return samples


# --- Chromium -----------------------------------------------------------------------------------------------------


def _after(violence: signal.Signals, settle_s: float) -> float:
    """Seconds from the signal to the first answer of a page in a new session."""
    with running() as server, server.caller() as caller:
        caller.evaluate(caller.open().tab_id)
        time.sleep(settle_s)
        (pid,) = caller.browser_pids()
        began = now_ms()
        os.kill(pid, violence)
        _use(caller, began)
        used_s = (now_ms() - began) / 1000
        if violence is signal.SIGSTOP:
            # What answered was not the one that was stopped.
            assert pid not in caller.browser_pids()
        return used_s


def _use(caller: Caller, began: float) -> None:
    """What a caller does that takes an error for what it is: ask again until a page answers."""
    while now_ms() - began < GIVE_UP_S * 1000:
        with suppress(Refused):
            caller.evaluate(caller.open().tab_id)
            return
    raise RuntimeError(f"no session could be used for {GIVE_UP_S} s")


def _after_kill_under_logins(site: str) -> tuple[float, float]:
    """Seconds from the kill until the first, and until the last, session greets its user again in its old tab."""
    with running() as server, server.caller() as caller:
        sessions = _log_in(caller, site)
        time.sleep(SETTLE_S)
        (pid,) = caller.browser_pids()
        began = now_ms()
        os.kill(pid, signal.SIGKILL)
        return _greeted(caller, sessions, began)


def _log_in(caller: Caller, site: str) -> dict[str, Opened]:
    """Sessions whose users are logged in, by the user's name, all of them written down."""
    sessions = {f"user-{number}": caller.open(keepAlive=True) for number in range(LOGINS)}
    for name, session in sessions.items():
        caller.act(session.tab_id, "navigate", url=site.rstrip("/") + LOGIN + name)
    for session in sessions.values():
        # To read its state is to have it written down.
        caller.call("GET", f"/sessions/{session.session_id}/state")
    return sessions


def _greeted(caller: Caller, sessions: dict[str, Opened], began: float, *, pause_s: float = 0.0) -> tuple[float, float]:
    """Seconds since `began` until the first, and until the last, has answered in its old tab as before."""
    answered_s: list[float] = []
    for name, session in sessions.items():
        found = _text(caller, session, began, pause_s)
        assert found == greeting(name), f"{session.tab_id} of {name} shows {found!r}"
        answered_s.append((now_ms() - began) / 1000)
    return answered_s[0], answered_s[-1]


def _text(caller: Caller, session: Opened, began: float, pause_s: float) -> str:
    """What the page shows, asked for again, after a pause, as long as there is none."""
    while True:
        try:
            text: str = caller.act(session.tab_id, "text", waitPolicy="wait_with_timeout")
            return text.strip()
        except Refused as refused:
            if now_ms() - began > GIVE_UP_S * 1000:
                raise RuntimeError(f"{session.tab_id} did not answer for {GIVE_UP_S} s") from refused
            time.sleep(pause_s)


# --- The broker ---------------------------------------------------------------------------------------------------


def _after_broker_kills() -> tuple[list[float], list[float]]:
    """Seconds from the start of the next broker until it says that it is ready, and until every page has answered."""
    ready: list[float] = []
    answering: list[float] = []
    with running() as server:
        with server.caller() as caller:
            sessions = [caller.open(keepAlive=True) for _ in range(SESSIONS)]
            for session in sessions:
                caller.evaluate(session.tab_id, f"window.mark = '{session.tab_id}'")
        for _ in range(RESTARTS):
            time.sleep(SETTLE_S)
            server.kill()
            ready_s, answering_s = _restart(server, sessions)
            ready.append(ready_s)
            answering.append(answering_s)
    return ready, answering


def _restart(server: Server, sessions: list[Opened]) -> tuple[float, float]:
    began = now_ms()
    server.spawn()
    server.wait_ready()
    ready_s = (now_ms() - began) / 1000
    with server.caller() as caller:
        for session in sessions:
            # The very page from before, not another one under its id.
            mark = caller.evaluate(session.tab_id, "window.mark")
            assert mark == session.tab_id, f"{session.tab_id} answered {mark!r}"
    return ready_s, (now_ms() - began) / 1000


def _after_broker_stops(site: str) -> tuple[list[float], list[float]]:
    """Seconds that stopping took, and from the start of the next broker until the last session greets its user."""
    stops: list[float] = []
    kept: list[float] = []
    with running() as server:
        with server.caller() as caller:
            sessions = _log_in(caller, site)
        for _ in range(LOGIN_KILLS):
            time.sleep(SETTLE_S)
            began = now_ms()
            server.stop()
            stopped = now_ms()
            server.start()
            with server.caller() as caller:
                _, last_s = _greeted(caller, sessions, stopped)
            stops.append((stopped - began) / 1000)
            kept.append(last_s)
    return stops, kept


# --- A node -------------------------------------------------------------------------------------------------------


def _after_node_kill(site: str, settle_s: float) -> tuple[float, float]:
    """Seconds from the kill until the first, and until the last, session greets its user at the other node."""
    settings = {"pools__default__browsers_max": 1}
    with running_postgres() as postgres, running_nodes(2, postgres.tcp_url, **settings) as (doomed, other):
        with doomed.caller() as caller:
            sessions = _log_in(caller, site)
            # One that had room opens them itself.
            places = {caller.call("GET", f"/sessions/{each.session_id}")["node"] for each in sessions.values()}
            assert places == {node_id(doomed)}, f"the sessions are on {places}"
        time.sleep(settle_s)
        with other.caller() as caller:
            began = now_ms()
            doomed.cut()
            return _greeted(caller, sessions, began, pause_s=ASK_AGAIN_S)
