"""The crash campaign: servers, browsers and database processes are killed under a crowd, at random and at named points.

The order of kills is that of the seed. Between two of them the crowd gets something done, so that every kill meets work
under way; afterwards everything that its members were told is compared with what there is.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias

import msgspec
from tests.cluster.rig import DEAD_AFTER_S
from tests.server.local_site import serving

from .afterwards import Afterwards, leftovers
from .crowd import crowd_at_work
from .inside.points import POINTS
from .ledger import Ledger
from .rigs import Life, Rig, postgres_rig, sqlite_rig
from .site import CountingSite

Store: TypeAlias = Literal["sqlite", "postgres"]

# What is killed on each kind of store; a node is a server that has another one beside it.
TARGETS: Final[dict[Store, tuple[str, ...]]] = {
    "sqlite": ("broker", "chromium"),
    "postgres": ("node", "chromium", "backend"),
}
# Points that are only passed by a server that starts.
AT_START: Final = frozenset(("the browsers of the last life are found", "a session of the last life is bound again"))
# Points that are only passed when a browser dies.
AT_DEATH: Final = frozenset(
    (
        "a browser was started and nobody knows its pid",
        "a session is marked recovering",
        "a recovered session is recorded",
    )
)
# What the crowd gets done between two kills, and how long that is waited for.
DONE_BETWEEN: Final = 6
WAIT_MAX_S: Final = 15.0
# How long something to kill is waited for.
VICTIM_LIMIT_S: Final = 60.0
# Now and then nothing is started again before others have taken over what was killed.
TAKEOVER_SHARE: Final = 0.1
TAKEOVER_S: Final = DEAD_AFTER_S + 2.0


class Report(msgspec.Struct, kw_only=True):
    """What came of it."""

    store: Store
    seed: int
    asked: int
    agents: int
    took_s: float = 0.0
    # By what was killed.
    kills: dict[str, int] = {}
    # Kills at each named point, and how often one was waited for in vain.
    points: dict[str, int] = {}
    points_missed: dict[str, int] = {}
    # What the crowd did meanwhile.
    acknowledged: dict[str, int] = {}
    effects: int = 0
    refused: dict[str, int] = {}
    # By what was checked: what is not as it should be.
    findings: dict[str, list[str]] = {}

    @property
    def is_good(self) -> bool:
        return not any(self.findings.values())

    @property
    def replay(self) -> str:
        return (
            f"python -m tests.campaign crash --store {self.store} --kills {self.asked} --seed {self.seed} "
            f"--agents {self.agents}"
        )


def run(
    *, store: Store, kills: int, seed: int, agents: int, think_s: float, place: Path, tell: Callable[[str], None]
) -> Report:
    """`kills` of everything that can be killed on that store."""
    place.mkdir(parents=True, exist_ok=True)
    report = Report(store=store, seed=seed, asked=kills, agents=agents)
    began_s = time.monotonic()
    ledger = Ledger(place / "ledger.jsonl")
    try:
        with serving(CountingSite()) as site, _rig(store, place) as (rig, lives):
            report.findings |= asyncio.run(_campaign(report, rig, lives, ledger, site, think_s, tell))
            _sum_up(report, ledger, site)
            for server in rig.servers:
                server.stop()
            report.findings["left behind by an orderly stop"] = leftovers(rig.servers)
    finally:
        ledger.close()
        report.took_s = round(time.monotonic() - began_s, 1)
    report.findings["errors in a server's log"] = _errors(place / "logs", [life.server.state for life in lives])
    return report


@contextmanager
def _rig(store: Store, place: Path) -> Iterator[tuple[Rig, list[Life]]]:
    with sqlite_rig(place) if store == "sqlite" else postgres_rig(place) as made:
        yield made


async def _campaign(
    report: Report,
    rig: Rig,
    lives: list[Life],
    ledger: Ledger,
    site: CountingSite,
    think_s: float,
    tell: Callable[[str], None],
) -> dict[str, list[str]]:
    states = [life.server.state for life in lives]
    async with crowd_at_work(states, site, ledger, agents=report.agents, think_s=think_s, seed=report.seed):
        killer = _Killer(report, rig, lives, Random(report.seed))
        for number, target in enumerate(killer.order(), start=1):
            await _something_done(ledger)
            await asyncio.to_thread(killer.kill, target)
            if number % 10 == 0:
                tell(f"{number} kills, {len(ledger.tried)} things tried, {len(ledger.surprises)} surprises")
        await _something_done(ledger)
    tell("the crowd has left; comparing")
    return await Afterwards(rig, ledger, site).findings()


async def _something_done(ledger: Ledger) -> None:
    """Until the crowd has got some things done since the last kill; it may have a hard time."""
    enough = sum(ledger.turns.values()) + DONE_BETWEEN
    give_up_s = time.monotonic() + WAIT_MAX_S
    while sum(ledger.turns.values()) < enough and time.monotonic() < give_up_s:
        await asyncio.sleep(0.05)


class _Killer:
    """Kills what it is told to, and starts it again."""

    def __init__(self, report: Report, rig: Rig, lives: list[Life], chance: Random) -> None:
        self._report = report
        self._rig = rig
        self._lives = lives
        self._chance = chance
        self._kills: Counter[str] = Counter()
        self._points: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        names = list(POINTS)
        chance.shuffle(names)
        # Every second kill of a server is at the next named point.
        self._turns = itertools.cycle([item for name in names for item in (name, None)])

    def order(self) -> list[str]:
        order = [target for target in TARGETS[self._report.store] for _ in range(self._report.asked)]
        self._chance.shuffle(order)
        return order

    def kill(self, target: str) -> None:
        life = self._chance.choice(self._lives)
        time.sleep(self._chance.uniform(0, 0.5))
        match target:
            case "chromium":
                self._until(lambda: life.kill_a_browser(self._chance))
            case "backend":
                self._until(lambda: self._rig.end_backend(self._chance))
            case _:
                self._kill_server(life)
        self._kills[target] += 1
        self._report.kills = dict(self._kills)
        self._report.points, self._report.points_missed = dict(self._points), dict(self._missed)

    def _kill_server(self, life: Life) -> None:
        point = next(self._turns)
        if point is None:
            life.kill()
        elif point in AT_START:
            life.kill()
            life.arm(point)
        else:
            if point in AT_DEATH:
                life.kill_a_browser(self._chance)
            self._note(point, life.kill_at(point))
        # One that has another beside it is sometimes taken for dead meanwhile.
        if len(self._lives) > 1 and self._chance.random() < TAKEOVER_SHARE:
            time.sleep(TAKEOVER_S)
        attempts = life.start()
        if point in AT_START:
            self._note(point, attempts > 1)

    def _note(self, point: str, was_reached: bool) -> None:
        (self._points if was_reached else self._missed)[point] += 1

    def _until(self, is_done: Callable[[], bool]) -> None:
        """There may just be none, of what is killed all the time."""
        give_up_s = time.monotonic() + VICTIM_LIMIT_S
        while not is_done():
            assert time.monotonic() < give_up_s, "there was nothing to kill"
            time.sleep(0.1)


# --- What it comes to -------------------------------------------------------------------------------------------


def _sum_up(report: Report, ledger: Ledger, site: CountingSite) -> None:
    kinds = Counter(tried.kind for tried in ledger.tried.values() if tried.id or tried.told)
    report.acknowledged = {**kinds, "session": len(ledger.sessions), "turns": sum(ledger.turns.values())}
    report.effects = sum(site.effects.values())
    report.refused = dict(ledger.refused)


def _errors(logs: Path, states: list[Path]) -> list[str]:
    """Our own bugs, as a server tells of them: what is of the world it calls a warning."""
    found: Counter[str] = Counter()
    for path in [*sorted(logs.glob("*.log")), *(state / "server.log" for state in states)]:
        for line in path.read_text("utf-8", "replace").splitlines():
            try:
                said: dict[str, Any] = json.loads(line)
            except ValueError:
                if line.startswith(("Traceback", "AssertionError")):
                    found[f"{path.name}: {line}"] += 1
                continue
            if said.get("level") in ("error", "critical") or "exception" in said:
                found[f"{path.name}: {said.get('event')}: {str(said.get('exception', ''))[-300:]}"] += 1
    return [f"{what} ({times} times)" for what, times in found.items()]


def table(report: Report) -> str:
    """The same, to be read."""
    lines = [
        f"- {report.store}, seed {report.seed}, {report.agents} clients, {report.took_s:.0f} s",
        f"- killed: {json.dumps(report.kills)}; at named points {sum(report.points.values())}, "
        f"missed {sum(report.points_missed.values())}",
        f"- acknowledged: {json.dumps(report.acknowledged)}; effects {report.effects}",
        f"- refusals that were heard: {json.dumps(dict(sorted(report.refused.items())))}",
        "",
        "| checked | wrong |",
        "|---|---|",
        *(f"| {what} | {len(wrong)} |" for what, wrong in report.findings.items()),
    ]
    wrong = [f"- {what}: {one}" for what, found in report.findings.items() for one in found[:10]]
    if wrong:
        lines += ["", *wrong, "", f"Again: {report.replay}"]
    return "\n".join(lines)
