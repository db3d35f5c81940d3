"""The queues that tasks are measured beside really do their jobs, and are really waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.rig import ledger
from bench.rig.ledger import postgres_ledger, wait_done
from bench.rig.peer_queues import PEERS, Peer, submit, working
from bench.rig.postgres import Postgres, running_postgres

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as started:
        yield started


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_job_is_done_exactly_once_whether_it_came_alone_or_in_a_batch(peer: Peer, postgres: Postgres) -> None:
    with working(peer, postgres), postgres_ledger(postgres.url_of(peer.database), peer.unfinished, peer.done) as ours:
        batched = submit(peer, postgres, requests=4, batch=5, connections=2)
        single = submit(peer, postgres, requests=10, batch=1, connections=2)
        wait_done(ours, 30)
        assert ours.done() == 30
        assert (len(batched.answers_ms), len(single.answers_ms)) == (4, 10)


class SlowLedger:
    """Nobody knows what is done before the last one is."""

    def __init__(self) -> None:
        self.looks = 0

    def done(self) -> int:
        assert self.looks == 3, "it was counted while work was left"
        return 7

    def is_settled(self) -> bool:
        self.looks += 1
        return self.looks == 3


def test_what_is_done_is_counted_only_when_nothing_is_left() -> None:
    slow = SlowLedger()
    wait_done(slow, 7)
    assert slow.looks == 3


def test_a_benchmark_that_does_not_come_to_its_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        def done(self) -> int:
            return 3

        def is_settled(self) -> bool:
            return True

    monkeypatch.setattr(ledger, "DONE_LIMIT_S", 0.0)
    with pytest.raises(RuntimeError, match="3 of 4 tasks"):
        wait_done(Stuck(), 4)
