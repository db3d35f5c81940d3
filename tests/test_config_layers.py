"""Where settings come from: who wins over whom, and what a reload keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabherd.config import Config, parse
from tabherd.config_layers import Layers, kept_keys, layers_of, load, named_values, without_zeros
from tabherd.errors import InvalidRequest


def test_without_a_named_file_the_one_in_the_state_directory_is_read(tmp_path: Path) -> None:
    environ = {"TABHERD_STATE": str(tmp_path)}
    assert load(environ=environ) == Config()
    (tmp_path / "tabherd.toml").write_text("[server]\nport = 9\n")
    assert load(environ=environ).server.port == 9


def test_a_named_file_is_read_instead_of_the_one_in_the_state_directory(tmp_path: Path) -> None:
    (tmp_path / "tabherd.toml").write_text("[server]\nport = 9\n")
    (tmp_path / "other.toml").write_text("")
    environ = {"TABHERD_STATE": str(tmp_path), "TABHERD_CONFIG": str(tmp_path / "other.toml")}
    assert load(environ=environ).server.port == 7722


def test_a_file_that_is_no_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        load(tmp_path, {})


def test_a_file_nested_beyond_reason_cannot_be_read_either() -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        Layers().tree_of(b"a = " + b"[" * 5_000)


def test_the_limits_and_lifetimes_of_tasks_are_what_zero_keeps() -> None:
    assert dict(kept_keys()) == {
        "scheduler": (
            "workers",
            "max_inflight_per_agent",
            "queue_max",
            "queue_max_per_agent",
            "deadline_ms",
            "attempts_max",
            "result_ttl_s",
        ),
        "retention": ("tasks_s", "tasks_max"),
    }


def test_at_a_start_zero_means_the_default() -> None:
    config = Layers().config_of({"scheduler": {"workers": 0}, "retention": {"tasks_s": 0}})
    assert config == Config()


def test_where_zero_has_a_meaning_it_keeps_that() -> None:
    config = Layers().config_of({"scheduler": {"priority_aging_ms": 0}, "retention": {"rejected_max": 0}})
    assert (config.scheduler.priority_aging_ms, config.retention.rejected_max) == (0, 0)


def test_elsewhere_zero_out_of_bounds_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        Layers().config_of({"gate": {"timeout_ms": 0}}, Config())


def test_no_is_not_zero() -> None:
    assert without_zeros({"scheduler": {"workers": False}}) == {"scheduler": {"workers": False}}


@pytest.mark.parametrize("scheduler", [{"workers": 0}, {}])
def test_a_reload_keeps_a_limit_that_is_zero_or_missing(scheduler: dict[str, int]) -> None:
    current = parse({"scheduler": {"workers": 7, "priority_aging_ms": 5}})
    config = Layers().config_of({"scheduler": scheduler, "server": {"drain_s": 1}}, current)
    assert (config.scheduler.workers, config.server.drain_s) == (7, 1)
    # Neither a limit nor a lifetime: the file alone says it.
    assert config.scheduler.priority_aging_ms == Config().scheduler.priority_aging_ms


def test_outside_of_those_what_the_file_no_longer_says_is_the_default_again() -> None:
    assert Layers().config_of({}, parse({"gate": {"timeout_ms": 5_000}})).gate == Config().gate


def test_the_file_never_changes_what_the_environment_or_a_flag_set() -> None:
    layers = layers_of(None, {"TABHERD_SCHEDULER__WORKERS": "3"}, {"server.drain_s": 4})
    config = layers.config_of({"scheduler": {"workers": 9}, "server": {"drain_s": 9}}, Config())
    assert (config.scheduler.workers, config.server.drain_s) == (3, 4)


def test_reading_the_layers_leaves_what_the_file_said_as_it_was() -> None:
    tree = {"server": {"drain_s": 9}}
    layers_of(None, {}, {"server.drain_s": 4}).config_of(tree)
    assert tree == {"server": {"drain_s": 9}}


@pytest.mark.parametrize("name", ["pools.default.warm", "pools.default", "pools"])
def test_what_overrides_a_key_is_found_for_it_and_for_the_tables_around_it(name: str) -> None:
    layers = layers_of(None, {"TABHERD_POOLS__DEFAULT__WARM": "3"})
    override = layers.override_of(name)
    assert override is not None
    assert (override.name, override.origin) == ("pools.default.warm", "TABHERD_POOLS__DEFAULT__WARM")
    assert layers.override_of("pools.def") is None


def test_a_flag_is_found_before_the_variable_that_it_wins_over() -> None:
    override = layers_of(None, {"TABHERD_SERVER__PORT": "1"}, {"server.port": 2}).override_of("server.port")
    assert override is not None
    assert override.source == "flag"


def test_settings_are_named_as_they_stand_in_the_file() -> None:
    tree = {"store": "s", "tiers": {"pro": 1}, "pools": {"p": {"warm": 2, "pinned_hosts": {"a.test": "::1"}}}}
    assert named_values(tree) == {
        "store": "s",
        "tiers.pro": 1,
        "pools.p.warm": 2,
        "pools.p.pinned_hosts": {"a.test": "::1"},
    }


def test_a_list_is_spelt_with_commas_in_the_environment() -> None:
    environ = {
        "TABHERD_SERVER__ALLOWED_HOSTS": "herd.test, other.test,",
        "TABHERD_POOLS__SHOP__ALLOW_HOSTS": "shop.test",
    }
    config = load(environ=environ)
    assert [*config.server.allowed_hosts] == ["herd.test", "other.test"]
    assert [*config.pools["shop"].allow_hosts] == ["shop.test"]
