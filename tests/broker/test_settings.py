"""What is in force: it changes as a whole, as far as it can without a restart, and who follows it is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tabherd.broker.settings import NEEDS_RESTART, Changes, Settings
from tabherd.config import Config, Pool, parse


def apply(old: dict[str, Any], new: dict[str, Any]) -> tuple[Settings, Changes]:
    settings = Settings(parse(old))
    return settings, settings.apply(parse(new))


def test_what_can_change_is_in_force_at_once() -> None:
    settings, changes = apply({}, {"gate": {"timeout_ms": 5_000}, "tiers": {"pro": 7}})
    assert changes == Changes(changed=("gate.timeout_ms", "tiers.pro"))
    assert (settings.current.gate.timeout_ms, settings.current.tiers["pro"]) == (5_000, 7)


def test_what_cannot_change_stays_and_is_named() -> None:
    settings, changes = apply({}, {"server": {"port": 1, "drain_s": 2}, "store": "memory://"})
    assert changes == Changes(changed=("server.drain_s",), needs_restart=("server.port", "store"))
    assert (settings.current.server.port, settings.current.server.drain_s) == (7722, 2)
    assert settings.needs_restart == ("server.port", "store")


def test_what_waits_for_a_restart_is_forgotten_when_it_is_taken_back() -> None:
    settings, _ = apply({}, {"server": {"port": 1}})
    assert settings.apply(parse({})) == Changes()
    assert settings.needs_restart == ()


def test_a_pool_of_which_one_setting_has_to_wait_waits_as_a_whole() -> None:
    # With the old profile and the new number there would be two browsers on one profile.
    kept = {"isolation": "shared", "profile_dir": "/profiles/one"}
    free = {"isolation": "shared", "browsers_max": 3}
    settings, changes = apply({"pools": {"one": kept}}, {"pools": {"one": free}})
    assert settings.current.pools["one"].browsers_max == 1
    assert changes == Changes(needs_restart=("pools.one.browsers_max", "pools.one.profile_dir"))


def test_pools_that_fit_together_only_after_a_restart_all_wait() -> None:
    old = {"pools": {"default": {"browsers_max": 10}, "big": {"browsers_max": 2}}}
    new = {"pools": {"default": {"browsers_max": 2, "headless": False}, "big": {"browsers_max": 10}}}
    settings, changes = apply(old, new)
    assert settings.current.pools == parse(old).pools
    assert changes.changed == ()
    assert set(changes.needs_restart) == {
        "pools.default.browsers_max",
        "pools.default.headless",
        "pools.big.browsers_max",
    }


@pytest.mark.parametrize(("old", "new"), [({}, {"pools": {"more": {}}}), ({"pools": {"more": {}}}, {})])
def test_a_pool_that_comes_or_goes_waits_for_a_restart_under_one_name(old: dict[str, Any], new: dict[str, Any]) -> None:
    settings, changes = apply(old, new)
    assert changes == Changes(needs_restart=("pools.more",))
    assert settings.current == parse(old)


def test_who_subscribed_is_told_what_was_and_what_is() -> None:
    settings = Settings(Config())
    told: list[tuple[Config, Config]] = []
    settings.subscribe(lambda old, new: told.append((old, new)))
    settings.apply(parse({"server": {"drain_s": 1, "port": 1}}))
    assert told == [(Config(), settings.current)]


def test_nobody_is_told_of_what_only_waits_for_a_restart() -> None:
    settings = Settings(Config())
    told: list[Config] = []
    settings.subscribe(lambda old, new: told.append(new))
    settings.apply(parse({"server": {"port": 1}}))
    settings.apply(parse({"server": {"port": 1}}))
    assert told == []


def test_everything_that_needs_a_restart_exists() -> None:
    sections = {field.name: field.type for field in msgspec.structs.fields(Config)} | {"": Config, "pools": Pool}
    for name, keys in NEEDS_RESTART.items():
        assert keys <= {field.name for field in msgspec.structs.fields(sections[name])}, name
