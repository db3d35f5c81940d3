"""Safeguards of a cluster that can be switched off, to show that the simulator of several nodes notices.

Each entry patches one piece of the product for the duration of a run, and names a seed whose history shows it;
`test_ablations.py` demands that. `python -m tests.sim_cluster.ablations` looks for seeds anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from tabherd.broker.commands import Commands
from tabherd.broker.lock_rows import LockRows
from tabherd.broker.takeover import Takeover
from tabherd.cluster.fenced_store import FencedStore
from tabherd.cluster.membership import Membership, _heard_at
from tabherd.core import lease
from tabherd.core.model import Session, Tab, changed
from tabherd.store.base import Applied, Outcome, Put

from .world import World

# How many histories are looked through for one that shows what is missing.
SEEDS_MAX = 400


class Ablation(NamedTuple):
    """How a safeguard is switched off, and a seed that shows it."""

    patch: Callable[[pytest.MonkeyPatch], None]
    seed: int


def patching(owner: Any, name: str, replacement: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """The product without one of its methods."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, replacement)


def _nothing(*args: Any, **kwargs: Any) -> tuple[()]:
    return ()


async def _apply_unfenced(self: FencedStore, *ops: Any) -> Outcome:
    """Without the requirement of the node's own row."""
    self._refuse_untrusted()
    return await self._store.apply(*ops)


def _declare_at_once(self: Membership, now: int, node: Any, beat: Any) -> bool:
    """However its own connection has been."""
    return now - _heard_at(node, beat) >= self._config.dead_after_s * 1000


async def _claim_whatever_stands(self: Takeover, gone: Any, row: Session) -> Session | None:
    """Without the comparison with what was read, and whether its node is still over."""
    outcome = await self._store.apply(
        Put(changed(row, node_id=self._node_id)),
        *(Put(changed(tab, node_id=self._node_id)) for tab in await self._store.select(Tab, {"session_id": row.id})),
    )
    assert isinstance(outcome, Applied)
    claimed = outcome.rows[0]
    assert isinstance(claimed, Session)
    return claimed


async def _no_proof(self: LockRows, standing: Any) -> tuple[()]:
    return ()


def _always_trusted(self: Membership) -> bool:
    return not self.is_fenced.is_set()


ABLATIONS: dict[str, Ablation] = {
    "every write requires the row of its node": Ablation(patching(FencedStore, "apply", _apply_unfenced), 1),
    "a node that cannot beat does not trust itself": Ablation(
        patching(Membership, "is_trusted", property(_always_trusted)), 2
    ),
    "a node declares others dead only if its own beats have been good": Ablation(
        patching(Membership, "_may_declare", _declare_at_once), 23
    ),
    "of several survivors one takes a session": Ablation(patching(Takeover, "_claim", _claim_whatever_stands), 2),
    "the fence is checked at the node that has the tab": Ablation(patching(lease, "check_fence", _nothing), 0),
    "the lease and the trust are checked again after a wait": Ablation(patching(Commands, "_check_again", _nothing), 0),
    "a lock that another node has is not given away": Ablation(patching(LockRows, "_proof_of_end", _no_proof), 9),
}


def search(safeguard: str, seeds: Iterable[int]) -> int | None:
    """The first of these seeds that shows that the safeguard is missing."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        ABLATIONS[safeguard].patch(monkeypatch)
        for seed in seeds:
            try:
                World(seed).run()
            except (AssertionError, RuntimeError):
                return seed
    return None


if __name__ == "__main__":
    for safeguard in sys.argv[1:] or ABLATIONS:
        print(f"{search(safeguard, range(SEEDS_MAX))}\t{safeguard}", flush=True)
