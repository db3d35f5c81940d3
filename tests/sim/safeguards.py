"""Every safeguard that can be switched off, and the search for the first history that notices."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from .ablations import ABLATIONS, Patch
from .minimise import Failure, minimise, play
from .other_ablations import OTHER_ABLATIONS
from .task_ablations import TASK_ABLATIONS

SAFEGUARDS: dict[str, Patch] = ABLATIONS | TASK_ABLATIONS | OTHER_ABLATIONS
# Histories that are tried for one safeguard.
SEEDS_MAX = 1_500


class Found(msgspec.Struct):
    """A safeguard, and the history that misses it."""

    safeguard: str
    failure: Failure


def first_failure(safeguard: str, seeds: Iterable[int], shorten_s: float = 0.0) -> Failure | None:
    """The first of those histories that fails without the safeguard; made shorter for at most that long."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_world = SAFEGUARDS[safeguard](monkeypatch)
        for seed in seeds:
            if (failure := play(make_world, seed)) is not None:
                return minimise(make_world, failure, shorten_s) if shorten_s else failure
    return None
