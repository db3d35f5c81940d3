"""Named locks of the client: what it asks for, how it knows that it still has a lock, and what a loss means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest
from tests.client.living import environ_of, until
from tests.client.scripted import Script, SleptClock, answer, refusal
from tests.server.conftest import Server

from tabherd import AsyncTabherd, Lock, Tabherd, errors, wire
from tabherd.client.pulse import next_wait_s
from tabherd.client.sync import locks

LOCK = {
    "name": "account:x",
    "acquired": True,
    "holder": "alice/pid-1",
    "agentId": "alice",
    "fence": 7,
    "ticket": "lck_1",
    "leaseMs": 30_000,
    "acquiredAt": "2026-01-01T00:00:00.000Z",
    "expiresAt": "2026-01-01T00:00:30.000Z",
}
BUSY = {"name": "account:x", "acquired": False, "holder": "bob"}
PATH = "/locks/account%3Ax"
BROKEN = httpx.ReadError("cut off")


@pytest.fixture
def ready(script: Script) -> Script:
    """A server that has the lock to give."""
    script.on("POST", PATH, answer(LOCK))
    script.on("POST", f"{PATH}/renew", answer(LOCK))
    script.on("DELETE", PATH, answer(status=204))
    return script


@pytest.fixture
def ticking(clock: SleptClock, monkeypatch: pytest.MonkeyPatch) -> SleptClock:
    """Time that passes only when the test says so, also for locks."""
    monkeypatch.setattr(locks, "monotonic", clock.monotonic)
    return clock


def asked(script: Script) -> dict[str, Any]:
    body: dict[str, Any] = script.bodies("POST", PATH)[-1]
    # What is sent is what the server takes.
    msgspec.convert(body, wire.AcquireLock)
    return body


# --- On paper ---------------------------------------------------------------------------------------------------


def test_a_lock_is_had_in_a_block_and_given_back_after_it(ready: Script) -> None:
    with ready.herd().lock("account:x", timeout=2) as lock:
        assert (lock.fence, bool(lock), lock.is_lost) == (7, True, False)
        lock.check()
        assert [call.method for call in ready.asked] == ["POST"]
    assert ready.asked[-1].method == "DELETE"
    assert ready.asked[-1].query == {"ticket": asked(ready)["ticket"]}


def test_all_that_can_be_wished_for_is_sent(ready: Script, ticking: SleptClock) -> None:
    with ready.herd().lock("account:x", timeout=2, lease_ms=500, owner=42, agent="bob"):
        body = asked(ready)
    assert (body["waitMs"], body["leaseMs"], body["owner"]["pid"], body["agentId"]) == (2_000, 500, 42, "bob")
    assert body["skip"] is False


def test_a_lock_that_is_only_tried_for_is_false_when_it_is_busy(script: Script) -> None:
    script.on("POST", PATH, answer(BUSY))
    with script.herd().try_lock("account:x") as got:
        assert not got
        assert asked(script)["skip"] is True
        with pytest.raises(errors.StateConflict):
            _ = got.fence
    assert [call.method for call in script.asked] == ["POST"]


def test_a_time_that_ran_out_is_raised_and_not_tried_again(script: Script, ticking: SleptClock) -> None:
    script.on("POST", PATH, refusal("lock_timed_out", 504, retryable=True))
    with pytest.raises(errors.LockTimedOut), script.herd().lock("account:x", timeout=2):
        pass
    assert len(script.asked) == 1


def test_an_answer_that_got_lost_is_asked_for_again_with_the_same_ticket_and_the_time_that_is_left(
    script: Script, ticking: SleptClock
) -> None:
    script.on("POST", PATH, BROKEN, answer(LOCK))
    script.on("DELETE", PATH, answer(status=204))
    with script.herd().lock("account:x", timeout=15):
        first, second = script.bodies("POST", PATH)
    assert first["ticket"] == second["ticket"]
    assert second["waitMs"] < first["waitMs"] == 15_000


def test_threads_are_different_controllers_and_one_thread_is_always_the_same(ready: Script) -> None:
    herd = ready.herd()

    def name() -> str:
        with herd.lock("account:x"):
            return str(asked(ready)["controllerId"])

    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(name).result()
    assert name() == name() != theirs


def test_a_lock_that_no_renewal_kept_is_lost_when_its_lease_is_over(ready: Script, ticking: SleptClock) -> None:
    lock = ready.herd().lock("account:x").acquire()
    ticking.sleep(29.9)
    lock.check()
    ticking.sleep(0.2)
    assert lock.is_lost
    with pytest.raises(errors.LockLost):
        lock.check()


def test_a_renewal_counts_from_when_it_was_sent(ready: Script, ticking: SleptClock) -> None:
    lock = ready.herd().lock("account:x").acquire()
    ticking.sleep(10)
    lock.renewal()
    # The way there and back.
    ticking.sleep(5)
    next_wait_s(lock, None)
    ticking.sleep(24.9)
    assert not lock.is_lost
    ticking.sleep(0.2)
    assert lock.is_lost


def test_a_lock_that_was_waited_for_longer_than_its_lease_is_renewed_before_it_is_used(
    script: Script, ticking: SleptClock
) -> None:
    asked: list[str] = []

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if not request.url.path.endswith("/renew"):
            ticking.sleep(100)
        return answer(LOCK)

    herd = Tabherd("http://herd.test", "secret", environ={}, transport=httpx.MockTransport(reply))
    assert not herd.lock("account:x", timeout=200).acquire().is_lost
    assert asked == ["/locks/account:x", "/locks/account:x/renew"]


def test_a_lock_that_expired_before_its_holder_heard_of_it_is_not_had(script: Script, ticking: SleptClock) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/renew"):
            return refusal("lock_not_found", 404)
        ticking.sleep(100)
        return answer(LOCK)

    herd = Tabherd("http://herd.test", "secret", environ={}, transport=httpx.MockTransport(reply))
    lock = herd.lock("account:x", timeout=200)
    with pytest.raises(errors.LockLost):
        lock.acquire()
    assert not lock


def test_a_lock_that_cannot_be_made_certain_is_given_back(script: Script, ticking: SleptClock) -> None:
    """Nobody would renew it or give it back, and its own holder would be told that it has it already."""
    asked: list[tuple[str, str]] = []

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path))
        if request.method == "DELETE":
            return answer(status=204)
        if request.url.path.endswith("/renew"):
            raise BROKEN
        ticking.sleep(100)
        return answer(LOCK)

    herd = Tabherd("http://herd.test", "secret", environ={}, transport=httpx.MockTransport(reply), patience_s=0)
    with pytest.raises(errors.NodeUnreachable):
        herd.lock("account:x", timeout=200).acquire()
    assert asked[-1] == ("DELETE", "/locks/account:x")


def test_a_loss_is_raised_at_the_end_of_the_block(ready: Script) -> None:
    with pytest.raises(errors.LockLost), ready.herd().lock("account:x") as lock:
        lock.was_lost(errors.LockLost("Somebody else has it."))
    assert [call.method for call in ready.asked] == ["POST"]


def test_what_went_wrong_in_the_block_is_not_hidden_by_a_loss(ready: Script) -> None:
    lock = ready.herd().lock("account:x")
    with pytest.raises(ZeroDivisionError), lock:
        _ = lock.was_lost(errors.LockLost("Somebody else has it.")) or 1 / 0


def test_a_lock_that_the_server_does_not_know_at_the_end_was_lost(script: Script) -> None:
    script.on("POST", PATH, answer(LOCK))
    script.on("DELETE", PATH, refusal("lock_not_found", 404))
    with pytest.raises(errors.LockLost), script.herd().lock("account:x"):
        pass


def test_a_lock_is_had_once(ready: Script) -> None:
    lock = ready.herd().lock("account:x").acquire()
    lock.release()
    lock.release()
    with pytest.raises(errors.StateConflict):
        lock.acquire()


# --- With a server ----------------------------------------------------------------------------------------------


@pytest.fixture
def herd(shared_server: Server) -> Iterator[Tabherd]:
    with Tabherd(environ=environ_of(shared_server)) as client:
        yield client


def names(herd: Tabherd) -> list[str]:
    return [lock.name for lock in herd.locks()]


def expiry(herd: Tabherd, name: str) -> str | None:
    """The end of the lease of that lock."""
    return next(lock.expires_at for lock in herd.locks() if lock.name == name)


@pytest.mark.server
@pytest.mark.browser
class TestWithAServer:
    def test_a_lock_is_renewed_while_its_holder_is_busy_and_free_after_its_block(self, herd: Tabherd) -> None:
        # A machine that does nothing for four seconds loses the lock, and rightly.
        with herd.lock("busy", lease_ms=6_000) as lock:
            first = expiry(herd, "busy")
            until(lambda: expiry(herd, "busy") != first)
            lock.check()
        assert names(herd) == []

    def test_a_thread_that_nests_hears_so_and_another_waits(self, herd: Tabherd) -> None:
        with ThreadPoolExecutor(1) as other:
            with herd.lock("nested"):
                with pytest.raises(errors.LockReentered), herd.lock("nested"):
                    pass
                waiting = other.submit(_have, herd, "nested")
                until(lambda: herd.locks()[0].waiters == 1)
            assert waiting.result(30) > 0

    def test_a_lock_that_was_forgotten_is_free_when_its_lease_ends(self, herd: Tabherd) -> None:
        herd.lock("forgotten", lease_ms=1_000).acquire()
        until(lambda: names(herd) == [])

    async def test_tasks_take_turns(self, shared_server: Server) -> None:
        inside = 0

        async def work(herd: AsyncTabherd) -> int:
            nonlocal inside
            async with herd.lock("turns") as lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.01)
                inside -= 1
                return lock.fence

        async with AsyncTabherd(environ=environ_of(shared_server)) as herd:
            fences = await asyncio.gather(*(work(herd) for _ in range(5)))
            assert len(set(fences)) == 5
            async with herd.try_lock("turns") as got:
                assert got
                async with herd.try_lock("turns") as again:
                    assert not again


def _have(herd: Tabherd, name: str) -> int:
    with herd.lock(name, timeout=30) as lock:
        return lock.fence


def test_the_lock_is_a_public_name() -> None:
    assert Lock is locks.Lock
