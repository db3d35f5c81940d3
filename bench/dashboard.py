"""`dashboard`: how soon it is there, what it weighs on the wire, and whether long lists scroll while things happen.

A load begins with an empty cache and a login, and is over when the numbers of the overview are on the screen; the first
paint is the browser's own (first contentful paint). Bytes are all that was received until then, heads included.

Then a crowd: sessions with a tab each, and tasks, are real. While callers run commands and submit tasks, so that events
keep coming in and the lists change, the wheel is turned over the list of tabs and the list of tasks; frames are counted
by the page. The worst frames are those of the slowest hundredth. The browsers of all these sessions share the machine's
cores with the one that shows the dashboard; a list that stands still, scrolled in the same way, shows what they leave.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from bench import Figure
from bench.rig.caller import Caller, Opened, Refused
from bench.rig.server import Server, running
from bench.rig.site import small_page
from bench.rig.viewer import Scroll, scrolled, viewing

LOADS: Final = 25
# A tile of the overview with a number in it.
NUMBERS: Final = "[data-tile] .figure"
BAR_PAINT_MS: Final = 300.0
BAR_KB: Final = 150.0
BAR_FRAMES: Final = 30.0
STILL: Final = "a list that stands still"

SESSIONS: Final = 200
TASKS: Final = 2_000
PER_BROWSER: Final = 25
SCROLL_S: Final = 12.0
SHORT: Final = (20, 400, 4.0)
# What goes on meanwhile.
STIR_S: Final = 0.05
CALLERS: Final = 6
BATCH: Final = 50
# Nobody touches the first session until the last is open; results must outlast the measurement.
IDLE_TTL_S: Final = 3_600
POLL_S: Final = 0.1


def run() -> dict[str, Figure]:
    with small_page() as url, running(pools__default__browsers_max=1) as server, server.caller() as caller:
        for number in range(3):
            caller.open(agentId=f"agent-{number}", url=url)
        with viewing(server) as viewer:
            loads = [viewer.load(NUMBERS) for _ in range(LOADS)]
    return {
        "first_paint_p50": Figure.median_of([load.first_paint_ms for load in loads], "ms", at_most=BAR_PAINT_MS),
        "overview_with_numbers_p50": Figure.median_of([load.shown_ms for load in loads], "ms"),
        "first_load": Figure.median_of([load.received_bytes / 1000 for load in loads], "KB", at_most=BAR_KB),
        "first_load_requests": Figure.median_of([float(load.requests) for load in loads], "requests"),
    }


def run_short() -> dict[str, Figure]:
    """Fewer of each."""
    return _scrolling(*SHORT)


def run_long() -> dict[str, Figure]:
    """As many as the bar asks for."""
    return _scrolling(SESSIONS, TASKS, SCROLL_S)


def _scrolling(sessions: int, tasks: int, seconds: float) -> dict[str, Figure]:
    settings: dict[str, Any] = {
        "pools__default__browsers_max": -(-sessions // PER_BROWSER),
        "pools__default__sessions_per_browser": PER_BROWSER,
        "pools__default__max_active": sessions,
        "pools__default__idle_ttl_s": IDLE_TTL_S,
        "pools__default__warm": 0,
        "scheduler__queue_max_per_agent": tasks,
        "scheduler__result_ttl_s": IDLE_TTL_S,
    }
    with small_page() as url, running(**settings) as server:
        opened = _open(server, sessions, url)
        _submit(server, opened, tasks)
        with viewing(server) as viewer, _stirred(server, opened) as stir:
            with viewer.page("/tabs") as page:
                tabs = scrolled(page, seconds)
            with viewer.page("/tasks") as page:
                listed = scrolled(page, seconds)
            with viewer.still_list(tasks) as page:
                still = scrolled(page, seconds)
    return {
        **_figures(f"tabs_of_{sessions}_sessions", tabs, still),
        **_figures(f"list_of_{tasks}_tasks", listed, still),
        "commands_and_tasks_meanwhile": Figure(ours=stir.done / (3 * seconds), unit="/s"),
    }


def _figures(name: str, scroll: Scroll, still: Scroll) -> dict[str, Figure]:
    return {
        f"{name}_frames_p50": Figure(ours=scroll.per_s, unit="/s", at_least=BAR_FRAMES, others={STILL: still.per_s}),
        f"{name}_frames_worst_1_percent": Figure(
            ours=scroll.worst_per_s,
            unit="/s",
            at_least=BAR_FRAMES,
            others={STILL: still.worst_per_s},
        ),
        f"{name}_processor_time_per_frame": Figure(ours=scroll.own_ms, unit="ms", others={STILL: still.own_ms}),
        f"{name}_heap": Figure(ours=scroll.heap_mb, unit="MB"),
    }


# --- The crowd ----------------------------------------------------------------------------------------------------


def _open(server: Server, count: int, url: str) -> list[Opened]:
    """So many sessions with the page loaded, by several callers."""

    def part(caller: Caller, numbers: range) -> list[Opened]:
        return [caller.open(agentId=f"agent-{number}", url=url) for number in numbers]

    with ExitStack() as stack, ThreadPoolExecutor(CALLERS) as threads:
        callers = [stack.enter_context(server.caller()) for _ in range(CALLERS)]
        parts = [threads.submit(part, caller, range(at, count, CALLERS)) for at, caller in enumerate(callers)]
        return [session for each in parts for session in each.result()]


def _submit(server: Server, sessions: list[Opened], count: int) -> None:
    """So many tasks, spread over the tabs, and wait until none is left in the queue."""
    with server.caller() as caller:
        for first in range(0, count, BATCH):
            tasks = [_task(sessions[number % len(sessions)]) for number in range(first, min(first + BATCH, count))]
            caller.call("POST", "/tasks/batch", {"agentId": f"agent-{first // BATCH}", "tasks": tasks})
        while caller.call("GET", "/scheduler/stats")["queue"]["totalQueued"]:
            time.sleep(POLL_S)


def _task(session: Opened) -> dict[str, Any]:
    return {"action": "evaluate", "tabId": session.tab_id, "params": {"expression": "document.title"}}


class _Stir:
    """What goes on while somebody looks."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.done = 0

    def keep_on(self, server: Server, sessions: list[Opened]) -> None:
        with server.caller() as caller:
            number = 0
            while not self.is_over.wait(STIR_S):
                session = sessions[number % len(sessions)]
                number += 1
                try:
                    if number % 2:
                        caller.evaluate(session.tab_id, "document.title")
                    else:
                        caller.call("POST", "/tasks", {"agentId": "agent-0", **_task(session)})
                except Refused:
                    # A task has the tab at the moment: as good as any other happening.
                    continue
                self.done += 1


@contextmanager
def _stirred(server: Server, sessions: list[Opened]) -> Iterator[_Stir]:
    stir = _Stir()
    thread = threading.Thread(target=stir.keep_on, args=(server, sessions))
    thread.start()
    try:
        yield stir
    finally:
        stir.is_over.set()
        thread.join()
