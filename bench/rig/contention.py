"""Many controllers on few tabs, and what the pages' own logs prove about how they took turns.

Each command writes into a list in its page when it begins, waits a moment, and writes when it ends. The page is the one
witness that cannot be wrong about it: whatever the broker believes, two commands that were in a page at once are there
in its list. When a command came is in its id, to the millisecond: it is made when the command enters the tab's queue.
Of two that came in the same one nobody can tell, so they are counted and not judged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tabherd.broker.ids import EPOCH_CHARS, TIME_CHARS, decode

from .caller import Line, now_ms
from .server import Server

# What each command does in its page.
WORK: Final = """async (token) => {
    const log = window.log ??= [];
    log.push([token, "begin", performance.now()]);
    await new Promise((done) => setTimeout(done, 10));
    log.push([token, "end", performance.now()]);
}"""
LOG: Final = "window.log.splice(0)"
TIMEOUT_MS: Final = 60_000

# One line of a page's log: whose, begin or end, and when by the page's own clock in milliseconds.
Entry = tuple[str, str, float]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What a page's log says about those who were there."""

    # Commands that began, or ended, while another one was at work.
    overlaps: int = 0
    # Commands that began after one that had come later.
    out_of_order: int = 0
    # Commands that were answered and are not in the log exactly once, or the other way round.
    not_once: int = 0
    # Commands that came in the same millisecond as the one before.
    undecided: int = 0

    def __add__(self, other: Judgement) -> Judgement:
        return Judgement(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class Contention(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it, over all tabs."""

    # How long each command waited for its turn, and its caller for the answer.
    waits_ms: list[float]
    answers_ms: list[float]
    seconds: float
    judgement: Judgement

    @property
    def per_s(self) -> float:
        return len(self.answers_ms) / self.seconds


def arrived_ms(command_id: str) -> int:
    """When the command entered its tab's queue, by the broker's clock."""
    start = len("cmd_") + EPOCH_CHARS
    return decode(command_id[start : start + TIME_CHARS])


def judge(log: Iterable[Entry], came_ms: Mapping[str, int]) -> Judgement:
    """A page's log against when the commands came that were answered, by token."""
    overlaps = out_of_order = undecided = 0
    at_work: set[str] = set()
    seen: Counter[str] = Counter()
    latest_ms = previous_ms = -1
    for token, what, _ in log:
        seen[f"{token} {what}"] += 1
        if what == "begin":
            overlaps += bool(at_work)
            at_work.add(token)
            came = came_ms.get(token, latest_ms)
            out_of_order += came < latest_ms
            undecided += came == previous_ms
            latest_ms, previous_ms = max(latest_ms, came), came
        else:
            overlaps += token not in at_work
            at_work.discard(token)
    wanted = Counter(f"{token} {what}" for token in came_ms for what in ("begin", "end"))
    wrong = {entry.rpartition(" ")[0] for entry in (wanted - seen) + (seen - wanted)}
    return Judgement(overlaps=overlaps, out_of_order=out_of_order, not_once=len(wrong), undecided=undecided)


async def contend(server: Server, *, tabs: int, controllers: int, seconds: float) -> Contention:
    """Let so many controllers, spread evenly, send commands to so many tabs, each the next when it has its answer."""
    with server.caller() as caller:
        tab_ids = [caller.open(keepAlive=True).tab_id for _ in range(tabs)]
        for tab_id in tab_ids:
            caller.evaluate(tab_id)
        crowd = [_Controller(f"controller-{n}", tab_ids[n % tabs]) for n in range(controllers)]
        lines = await asyncio.gather(*(Line.open(server.url, server.token) for _ in crowd))
        try:
            began = now_ms()
            until_ms = began + seconds * 1000
            await asyncio.gather(*(one.work(line, until_ms) for one, line in zip(crowd, lines, strict=True)))
            took_s = (now_ms() - began) / 1000
        finally:
            for line in lines:
                line.close()
        judgement = Judgement()
        for tab_id in tab_ids:
            came_ms = {token: at for one in crowd if one.tab_id == tab_id for token, at in one.came_ms.items()}
            judgement += judge(caller.evaluate(tab_id, LOG), came_ms)
    return Contention(
        waits_ms=[wait for one in crowd for wait in one.waits_ms],
        answers_ms=[answer for one in crowd for answer in one.answers_ms],
        seconds=took_s,
        judgement=judgement,
    )


class _Controller:
    """One of the crowd, and what it was told."""

    def __init__(self, name: str, tab_id: str) -> None:
        self.tab_id = tab_id
        self.came_ms: dict[str, int] = {}
        self.waits_ms: list[float] = []
        self.answers_ms: list[float] = []
        self._name = name

    async def work(self, line: Line, until_ms: float) -> None:
        while (began := now_ms()) < until_ms:
            token = f"{self._name}/{len(self.answers_ms)}"
            answer = await line.call("POST", f"/tabs/{self.tab_id}/action", self._command(token))
            assert answer["ok"], answer
            self.answers_ms.append(now_ms() - began)
            self.waits_ms.append(answer["queuedMs"])
            self.came_ms[token] = arrived_ms(answer["commandId"])

    def _command(self, token: str) -> dict[str, Any]:
        return {
            "kind": "evaluate",
            "expression": WORK,
            "args": [token],
            "controllerId": self._name,
            "waitPolicy": "wait_with_timeout",
            "timeoutMs": TIMEOUT_MS,
        }
