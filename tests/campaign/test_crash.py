"""A kill of each kind: the short form of `python -m tests.campaign crash`.

On PostgreSQL in every run, since there is most to kill; servers on SQLite are killed by `tests/server/test_crash.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .crash import Store, run, table

pytestmark = [pytest.mark.server, pytest.mark.browser]

KILLS = int(os.environ.get("CAMPAIGN_KILLS", "1"))
SEED = int(os.environ.get("CAMPAIGN_SEED", "1"))


@pytest.mark.parametrize("store", [pytest.param("sqlite", marks=pytest.mark.soak), "postgres"])
def test_whatever_is_killed_nothing_acknowledged_is_lost_or_done_twice_and_nothing_is_left(
    store: Store, tmp_path: Path
) -> None:
    report = run(store=store, kills=KILLS, seed=SEED, agents=6, think_s=0.2, place=tmp_path, tell=print)
    assert report.is_good, table(report)
