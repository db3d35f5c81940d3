"""Kill -9 at random moments: everything acknowledged is there, and nothing is there by half."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from tabherd.core.model import RowT, Session, Tab
from tabherd.store.base import Store
from tabherd.store.sqlite import SqliteStore

KILLS = 3
SEED = 7
# More than any round can write before it is killed, so that rounds do not share numbers.
ROUND = 1_000_000


async def test_kill_nine_loses_nothing_acknowledged_and_halves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chance = random.Random(SEED)
    acknowledged: set[str] = set()
    for round in range(KILLS):
        acknowledged |= run_and_kill(path, first=round * ROUND, after=chance.randrange(1, 300))
        store = SqliteStore(path)
        sessions = await everything(store, Session)
        tabs = await everything(store, Tab)
        live = await store.counter("live")
        fence = await store.counter("seq:fence")
        await store.close()

        assert acknowledged <= sessions.keys(), f"lost: {sorted(acknowledged - sessions.keys())}"
        assert sessions.keys() == tabs.keys()
        assert live == len(sessions)
        fences = [row.fence for row in sessions.values()]
        assert len(set(fences)) == len(fences)
        assert max(fences) <= fence


def run_and_kill(path: Path, *, first: int, after: int) -> set[str]:
    """Let the child acknowledge that many transactions, kill it in the middle of the next, give all it acknowledged."""
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("crash_child.py")), str(path), str(first)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        lines = [child.stdout.readline() for _ in range(after)]
    finally:
        child.kill()
        rest, _ = child.communicate()
    # A kill may cut the last line short; then its reader never had the acknowledgement.
    lines += [line for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    assert all(lines), "the child ended by itself"
    return {line.decode().strip() for line in lines}


async def everything(store: Store, kind: type[RowT]) -> dict[str, RowT]:
    rows: dict[str, RowT] = {}
    while page := await store.select(kind, after=max(rows, default="")):
        rows |= {row.id: row for row in page}
    return rows
