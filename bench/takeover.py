"""`takeover`: how long after a violent end the capacity is usable again.

Chromium killed, Chromium stopped (it lives but answers nobody), and the broker itself killed with sessions open. Usable
means used: a session is opened and a page in it answers; after the broker's death, every page of every session answers
with what it was told before. Each death of a Chromium happens to a fresh server, so that its circuit breaker never
counts two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final

from bench import Figure
from bench.rig.caller import Caller, Opened, Refused, now_ms
from bench.rig.server import Server, running

KILLS: Final = 7
STOPS: Final = 5
RESTARTS: Final = 5
SESSIONS: Final = 50
# Browsers are killed once the warm stock is full and nothing else goes on.
SETTLE_S: Final = 1.0
# Until callers give up on being served at all.
GIVE_UP_S: Final = 60.0
BAR_KILLED_S: Final = 1.0
BAR_STOPPED_S: Final = 4.0
BAR_BROKER_S: Final = 2.0


def run() -> dict[str, Figure]:
    # At different moments between two probes, which come every second.
    killed = [_after(signal.SIGKILL, SETTLE_S + turn / KILLS) for turn in range(KILLS)]
    stopped = [_after(signal.SIGSTOP, SETTLE_S + turn / STOPS) for turn in range(STOPS)]
    ready, answering = _after_broker_kills()
    imports = [_imports_s() for _ in range(RESTARTS)]
    return {
        "chromium_killed": Figure.median_of(killed, "s", at_most=BAR_KILLED_S),
        "chromium_killed_max": Figure(ours=max(killed), unit="s", at_most=BAR_KILLED_S),
        "chromium_stopped": Figure.median_of(stopped, "s", at_most=BAR_STOPPED_S),
        "chromium_stopped_max": Figure(ours=max(stopped), unit="s", at_most=BAR_STOPPED_S),
        f"broker_killed_{SESSIONS}_answer": Figure.median_of(
            answering, "s", others={"starting Python and importing": imports}, at_most=BAR_BROKER_S
        ),
        f"broker_killed_{SESSIONS}_answer_max": Figure(ours=max(answering), unit="s", at_most=BAR_BROKER_S),
        f"broker_killed_{SESSIONS}_ready": Figure.median_of(ready, "s"),
    }


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


def _imports_s() -> float:
    """The part of a start that no server can save: Python with everything it imports."""
    began = now_ms()
    subprocess.run([sys.executable, "-c", "import tabherd.cli.main, tabherd.edge.server"], check=True)
    return (now_ms() - began) / 1000
