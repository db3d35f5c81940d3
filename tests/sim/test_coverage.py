"""Every verb is played, every fault strikes, every verb that takes time is struck, and nothing is violated."""

from __future__ import annotations

import pytest

from .campaign import play_all
from .minimise import minimise
from .world import World

SEEDS = 200
VERBS = {
    "acquire lock",
    "cancel",
    "cancel task",
    "change settings",
    "close tab",
    "command",
    "command with a key",
    "deliver webhook",
    "disconnect",
    "drain",
    "drain browser",
    "force lock",
    "hand off",
    "heartbeat",
    "list files",
    "list tasks",
    "lock tab",
    "look at command",
    "look at task",
    "open session",
    "open tab",
    "put state",
    "read file",
    "read state",
    "release lock",
    "release session",
    "renew lock",
    "restart browser",
    "resume",
    "resume tab",
    "start",
    "submit batch",
    "submit task",
    "take over",
    "unlock tab",
    "upload file",
}
FAULTS = {
    "broker is killed",
    "browser answers late",
    "browser does not start",
    "browser hangs",
    "browser is killed",
    "caller leaves",
    "clock is set",
    "news of a page come twice",
    "page closes",
    "page crashes",
    "page opens another",
    "receiver is silent",
    "receiver refuses",
    "write fails",
}


def test_every_verb_is_played_and_every_fault_strikes() -> None:
    played = play_all(range(SEEDS))
    if played.failures:
        pytest.fail(minimise(World, played.failures[0]).story(), pytrace=False)
    coverage = played.coverage
    assert {verb for verb, count in coverage.verbs.items() if count} >= VERBS
    assert set(coverage.faults) == FAULTS
    # The pairs that matter most are there in any campaign; `--coverage` prints all of them.
    for verb in ("open session", "release session", "command", "command with a key", "acquire lock", "start"):
        assert coverage.both[verb, "broker is killed"], f"no broker is killed during {verb}"
        assert coverage.both[verb, "write fails"], f"no write fails during {verb}"
