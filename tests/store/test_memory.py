"""What the store in memory promises to the simulator, beyond what every store does."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tabherd.core.model import Session
from tabherd.store.base import Add, Applied, Insert
from tabherd.store.memory import MemoryStore

from .samples import session


def step(call: Coroutine[Any, Any, Any]) -> Any:
    """Run a call by hand, without any event loop, to its one suspension."""
    return call.send(None)


def finish(call: Coroutine[Any, Any, Any]) -> Any:
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("suspended twice")


def test_every_call_suspends_exactly_once_and_needs_no_event_loop() -> None:
    store = MemoryStore()
    calls = [store.apply(Add("n", 1)), store.get(Session, "s"), store.select(Session), store.counter("n")]
    for call in calls:
        step(call)
    assert [finish(call) for call in calls] == [Applied((None,)), None, [], 1]


def test_a_transaction_takes_effect_before_its_caller_hears_of_it() -> None:
    store = MemoryStore()
    call = store.apply(Insert(session("s")))
    step(call)
    call.close()
    read = store.get(Session, "s")
    step(read)
    assert finish(read) == session("s", version=1)
