"""Writes to a store until it is killed, and says which writes were acknowledged: the victim of the crash test.

`python crash_child.py FILE FIRST`: callers run at once, each applying transactions with numbers of its own from FIRST
on. Every transaction touches two tables and a counter, so that half of one would show. A line on standard output is an
acknowledgement.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from tabherd.core.lifecycle import LeaseState, TabState
from tabherd.core.model import Session, Tab
from tabherd.store.base import Add, Applied, Insert
from tabherd.store.sqlite import SqliteStore

CALLERS = 16


async def main(path: Path, first: int) -> None:
    store = SqliteStore(path)
    numbers = itertools.count(first)

    async def caller() -> None:
        while True:
            id = f"{next(numbers):08d}"
            session = Session(id=id, state=LeaseState.RESERVED, agent_id="a", pool="default")
            tab = Tab(id=id, session_id=id, node_id="n", browser_id="b", state=TabState.OPENING)
            outcome = await store.apply(Insert(session, numbered="fence"), Add("live", 1), Insert(tab))
            assert isinstance(outcome, Applied), outcome
            # One write per line, past any buffer: what is read was acknowledged, also when we die right after.
            os.write(1, f"{id}\n".encode())

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
