"""Makes the history of a violation short: leaves out whatever it does not need, and tells the rest in plain words."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import msgspec

from .world import World

# A world for a seed, with what is to be left out.
MakeWorld = Callable[..., World]
# How long it may take to look for a shorter history.
BUDGET_S = 20.0
# What differs from one telling of the same violation to the next.
_DETAILS = re.compile(r"\b(ada|bob|cyd|root|eve)\b|\b[a-z]+_[0-9a-z]{8,}\b|\d+|\[[^]]*\]|\{[^}]*\}|\([^)]*\)")
_IDS = re.compile(r"\b(ses|tab|tsk|brw|cmd)_[0-9a-z]{8,}\b|\b(target|context)-\d+\b")
_NAMES = {
    "ses": "session",
    "tab": "tab",
    "tsk": "task id",
    "brw": "browser",
    "cmd": "command id",
    "target": "page",
    "context": "context",
}


class Failure(msgspec.Struct):
    """A history that ends in a violation."""

    seed: int
    what: str
    history: list[str]
    # What was left out of it, and what is left in.
    left_out: list[str] = []
    deeds: list[str] = []
    # How many deeds there were before anything was left out.
    before: int = 0

    def story(self) -> str:
        """In plain words, with the command that replays it."""
        seen: dict[str, str] = {}

        def name(found: re.Match[str]) -> str:
            kind = _NAMES[found[1] or found[2]]
            count = sum(known.startswith(f"{kind} ") for known in seen.values())
            return seen.setdefault(found[0], f"{kind} {count + 1}")

        lines = [_IDS.sub(name, line) for line in (*self.history, f"seed {self.seed}: {self.what}")]
        shortened = f"{len(self.deeds)} of {self.before} deeds are enough for it"
        return "\n".join(
            (*lines, *([shortened] if self.left_out else []), f"replay it with: make sim SEED={self.seed}")
        )


def play(make_world: MakeWorld, seed: int, left_out: frozenset[str] = frozenset()) -> Failure | None:
    """One history; what went wrong in it, if anything did."""
    world = make_world(seed, left_out=left_out)
    try:
        world.run()
    except (AssertionError, RuntimeError) as error:
        # A violation, or the broker's own assertions noticed first, or it goes round in circles.
        deeds = world.script.happened
        return Failure(seed, str(error), world.history, sorted(left_out), deeds, len(deeds))
    return None


def minimise(make_world: MakeWorld, failure: Failure, budget_s: float = BUDGET_S) -> Failure:
    """The same violation with as little as can be found in the time."""
    until = time.monotonic() + budget_s
    before, best = failure.before, failure
    size = max(1, len(best.deeds) // 2)
    while size:
        at = 0
        while at < len(best.deeds):
            if time.monotonic() > until:
                return msgspec.structs.replace(best, before=before)
            left_out = frozenset((*best.left_out, *best.deeds[at : at + size]))
            shorter = play(make_world, failure.seed, left_out)
            if shorter is not None and kind_of(shorter.what) == kind_of(failure.what):
                best = shorter
            else:
                at += size
        size //= 2
    return msgspec.structs.replace(best, before=before)


def kind_of(what: str) -> str:
    """What is the same in every telling of one kind of violation."""
    return _DETAILS.sub("…", what)
