"""Settings: file, environment, flags, in that order; what is wrong is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabherd import config
from tabherd.browsers.debug_port import RESTRICTED_PORTS
from tabherd.config import Config, Pool, is_loopback, parse, state_dir
from tabherd.config_layers import load
from tabherd.core.lease import LeaseTimes
from tabherd.errors import InvalidRequest, UnknownField


def test_without_anything_the_defaults_apply() -> None:
    settings = load(environ={})
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 7722)
    assert settings.auth.enabled
    assert set(settings.pools) == {"default"}
    assert settings.tiers["pro"] == 3_600


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tabherd.toml"
    file.write_text("[server]\nport = 1\nhost = 'localhost'\ndrain_s = 5\n")
    environ = {"TABHERD_SERVER__PORT": "2", "TABHERD_SERVER__HOST": "127.0.0.2"}
    settings = load(file, environ, {"server.port": 3})
    assert (settings.server.port, settings.server.host, settings.server.drain_s) == (3, "127.0.0.2", 5)


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tabherd.toml"
    file.write_text("[server]\nport = 4\n")
    assert load(environ={"TABHERD_CONFIG": str(file)}).server.port == 4


def test_a_pool_is_reached_through_the_environment() -> None:
    assert load(environ={"TABHERD_POOLS__DEFAULT__MAX_ACTIVE": "8"}).pools["default"].max_active == 8


@pytest.mark.parametrize("name", sorted(config.ENV_RESERVED))
def test_variables_that_are_not_settings_are_left_alone(name: str, tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.write_text("")
    assert load(environ={name: str(file)}) == Config()


def test_other_pools_and_tiers_do_not_remove_the_built_in_ones() -> None:
    settings = parse({"pools": {"big": {}}, "tiers": {"overnight": 40_000}})
    assert set(settings.pools) == {"default", "big"}
    assert set(settings.tiers) == {"instant", "default", "pro", "deep", "overnight"}


@pytest.mark.parametrize(
    ("raw", "field", "nearest"),
    [
        ({"sever": {}}, "sever", "server"),
        ({"server": {"prot": 1}}, "server.prot", "server.port"),
        ({"pools": {"x": {"max_activ": 1}}}, "pools.x.max_activ", "pools.x.max_active"),
        ({"gate": {"zzzzzz": 1}}, "gate.zzzzzz", None),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(raw: dict[str, object], field: str, nearest: str | None) -> None:
    with pytest.raises(UnknownField) as caught:
        parse(raw)
    assert caught.value.details == {"field": field, "nearest": nearest}


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"server": {"port": 70_000}}, "server.port"),
        ({"server": {"port": "abc"}}, "server.port"),
        ({"server": {"log_format": "xml"}}, "server.log_format"),
        ({"tiers": {"pro": 0}}, "tiers"),
        ({"auth": {"rate_per_s": 10, "rate_burst": 5}}, "auth.rate_burst"),
        ({"gate": {"timeout_ms": 10, "timeout_floor_ms": 20}}, "gate.timeout_floor_ms"),
        ({"store": "mysql://x"}, "store"),
        ({"pools": 3}, "pools"),
        ({"tiers": "pro"}, "tiers"),
        ({"pools": {"default": {"max_active": 2, "max_active_per_agent": 3}}}, "pools.default.max_active"),
        ({"pools": {"s": {"isolation": "shared", "max_active_per_key": 17}}}, "pools.s.max_active"),
        ({"pools": {"s": {"max_pooled": 0}}}, "pools"),
        ({"pools": {"s": {"max_pooled": 3, "max_pooled_per_key": 4}}}, "pools.s.max_pooled_per_key"),
        ({"pools": {"s": {"max_active": 9, "max_tabs": 8}}}, "pools.s.max_tabs"),
        ({"pools": {"s": {"isolation": "shared", "max_active": 9, "max_tabs": 8}}}, "pools.s.max_tabs"),
        ({"pools": {"s": {"heartbeat_s": 60, "stale_after_s": 119}}}, "pools.s.stale_after_s"),
        ({"pools": {"s": {"heartbeat_s": 91}}}, "pools.s.stale_after_s"),
        ({"pools": {"s": {"disconnect_grace_s": -1}}}, "pools"),
        ({"pools": {"s": {"owner_dead_grace_ms": -1}}}, "pools"),
        ({"pools": {"s": {"deadline_grace_s": -1}}}, "pools"),
        ({"server": {"host": "0.0.0.0"}, "auth": {"enabled": False}}, "auth.enabled"),
        ({"pools": {"default": {"browsers_min": 5}}}, "pools.default.browsers_min"),
        ({"pools": {"default": {"acquire_wait_ms": 120_001}}}, "pools"),
        ({"pools": {"default": {"endpoint": "http://127.0.0.1:9222"}}}, "pools.default.endpoint"),
        ({"pools": {"mine": {"source": "attach"}}}, "pools.mine.endpoint"),
        ({"pools": {"mine": {"source": "attach", "endpoint": "https://127.0.0.1"}}}, "pools.mine.endpoint"),
        ({"pools": {"mine": {"source": "attach", "endpoint": "http://x:99999"}}}, "pools.mine.endpoint"),
        (
            {"pools": {"mine": {"source": "attach", "endpoint": "ws://x/y", "isolation": "browser"}}},
            "pools.mine.isolation",
        ),
        (
            {"pools": {"mine": {"source": "attach", "endpoint": "ws://x/y", "browsers_max": 2}}},
            "pools.mine.browsers_max",
        ),
        ({"pools": {"one": {"isolation": "browser", "sessions_per_browser": 25}}}, "pools.one.sessions_per_browser"),
        ({"pools": {"net": {"allow_hosts": ["http://a.test"]}}}, "pools.net.allow_hosts"),
        ({"pools": {"net": {"deny_hosts": ["10.0.0.1/8"]}}}, "pools.net.deny_hosts"),
        ({"pools": {"net": {"pinned_hosts": {"a.test": "b.test"}}}}, "pools.net.pinned_hosts"),
        ({"pools": {"net": {"deny_private_networks": True, "flags": ["--no-proxy-server"]}}}, "pools.net.flags"),
        ({"pools": {"net": {"deny_hosts": ["a.test"], "flags": ["--proxy-pac-url=x"]}}}, "pools.net.flags"),
        (
            {
                "pools": {
                    "net": {"source": "attach", "endpoint": "http://127.0.0.1:1", "isolation": "shared"}
                    | {"deny_hosts": ["a.test"]}
                }
            },
            "pools.net.isolation",
        ),
        (
            {"pools": {"net": {"source": "attach", "endpoint": "http://10.0.0.1:1", "deny_hosts": ["a.test"]}}},
            "pools.net.endpoint",
        ),
        ({"pools": {"kept": {"profile_dir": "/p"}}}, "pools.kept.profile_dir"),
        ({"pools": {"kept": {"isolation": "shared", "profile_dir": "p"}}}, "pools.kept.profile_dir"),
        (
            {"pools": {"kept": {"isolation": "shared", "profile_dir": "/p", "browsers_max": 2}}},
            "pools.kept.browsers_max",
        ),
        (
            {
                "pools": {
                    "kept": {"isolation": "shared", "profile_dir": "/p"},
                    "same": {"isolation": "shared", "profile_dir": "/q/../p"},
                }
            },
            "pools.same.profile_dir",
        ),
        ({"pools": {"big": {"browsers_max": config.DEBUG_PORTS}}}, "pools.big.browsers_max"),
    ],
)
def test_a_value_out_of_bounds_or_in_contradiction_is_refused_by_name(raw: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(raw)
    assert caught.value.details["field"].startswith(field)


def test_a_section_that_is_given_as_a_value_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        load(environ={"TABHERD_SERVER": "x", "TABHERD_SERVER__PORT": "1"})


@pytest.mark.parametrize("content", ["port = ", "\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tabherd.toml"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(InvalidRequest, match=r"tabherd\.toml"):
        load(file, {})


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="does not exist"):
        load(tmp_path / "none.toml", {})


def test_without_auth_only_loopback_is_allowed() -> None:
    assert not parse({"server": {"host": "::1"}, "auth": {"enabled": False}}).auth.enabled
    assert [is_loopback(host) for host in ("localhost", "127.9.9.9", "0.0.0.0", "10.0.0.1")] == [
        True,
        True,
        False,
        False,
    ]


def test_the_state_directory_is_the_named_one_or_the_platforms() -> None:
    assert state_dir({"TABHERD_STATE": "/somewhere/else"}) == Path("/somewhere/else")
    assert state_dir({"XDG_STATE_HOME": "/x"}).name == "tabherd"


def test_what_follows_from_a_pools_other_settings_need_not_be_said() -> None:
    pools = parse(
        {
            "pools": {
                "one": {"isolation": "browser"},
                "mine": {"source": "attach", "endpoint": "http://127.0.0.1:9222"},
                "kept": {"isolation": "shared", "profile_dir": "/p"},
            }
        }
    ).pools
    assert pools["one"].sessions_per_browser == 1
    assert [pools[name].browsers_max for name in ("default", "mine", "kept")] == [4, 1, 1]
    assert [pools[name].is_single for name in ("default", "mine", "kept")] == [False, True, True]


def test_a_caller_of_a_shared_pool_does_not_wait_unless_told_to() -> None:
    pools = parse({"pools": {"s": {"isolation": "shared"}, "t": {"isolation": "shared", "acquire_wait_ms": 7}}}).pools
    assert [pools[name].wait_ms for name in ("default", "s", "t")] == [30_000, 0, 7]


def pool_of(**settings: object) -> Pool:
    return parse({"pools": {"p": settings}}).pools["p"]


def caps_of(pool: Pool) -> tuple[int, ...]:
    """Active, active per key, pooled, pooled per key, tabs; browsers, sessions in each."""
    return (
        *(pool.max_active, pool.max_active_per_key, pool.max_pooled, pool.max_pooled_per_key, pool.tabs_max),
        *(pool.browsers_max, pool.sessions_per_browser),
    )


@pytest.mark.parametrize(
    ("settings", "caps"),
    [
        ({}, (0, 0, 14, 5, 0, 4, 25)),
        ({"isolation": "browser"}, (0, 0, 14, 5, 0, 4, 1)),
        ({"isolation": "shared"}, (16, 5, 14, 5, 20, 1, 25)),
    ],
    ids=["context", "browser", "shared"],
)
def test_a_pool_that_names_no_caps_has_those_of_its_isolation(
    settings: dict[str, object], caps: tuple[int, ...]
) -> None:
    assert caps_of(pool_of(**settings)) == caps


@pytest.mark.parametrize(
    ("said", "caps"),
    [
        # Caps that were not named stay within those that were.
        ({"max_active": 3}, (3, 3, 14, 5, 20, 1, 25)),
        ({"max_active": 30}, (30, 5, 14, 5, 30, 1, 30)),
        ({"max_tabs": 8}, (8, 5, 14, 5, 8, 1, 25)),
        ({"max_pooled": 2}, (16, 5, 2, 2, 20, 1, 25)),
        # Zero is an answer, too.
        ({"max_active": 0, "max_active_per_key": 0}, (0, 0, 14, 5, 20, 1, 25)),
        ({"max_tabs": 0}, (16, 5, 14, 5, 0, 1, 25)),
        # As the environment spells them.
        ({"max_active": "30", "max_tabs": "40"}, (30, 5, 14, 5, 40, 1, 40)),
        ({"max_tabs": 5_000}, (16, 5, 14, 5, 5_000, 1, 1_000)),
        ({"browsers_max": 2, "sessions_per_browser": 3}, (16, 5, 14, 5, 20, 2, 3)),
    ],
)
def test_the_caps_that_a_shared_pool_does_not_name_fit_those_it_names(
    said: dict[str, object], caps: tuple[int, ...]
) -> None:
    assert caps_of(pool_of(isolation="shared", **said)) == caps


def test_the_lease_times_are_the_ones_that_leases_have_by_themselves() -> None:
    pool, times = pool_of(), LeaseTimes()
    assert (
        LeaseTimes(
            heartbeat_ms=pool.heartbeat_s * 1_000,
            stale_after_ms=pool.stale_after_s * 1_000,
            idle_ttl_ms=pool.idle_ttl_s * 1_000,
            disconnect_grace_ms=pool.disconnect_grace_s * 1_000,
            owner_dead_grace_ms=pool.owner_dead_grace_ms,
            deadline_grace_ms=pool.deadline_grace_s * 1_000,
            pooled_ttl_ms=pool.pooled_ttl_s * 1_000,
        )
        == times
    )


def test_two_beats_are_enough_for_a_heartbeat_to_be_stale() -> None:
    assert pool_of(heartbeat_s=5, stale_after_s=10).stale_after_s == 10


def test_attached_browsers_need_no_debug_port_of_ours() -> None:
    here = {f"p{n}": {"source": "attach", "endpoint": f"ws://127.0.0.1:{9000 + n}/x"} for n in range(30)}
    assert len(parse({"pools": here}).pools) == 31


def test_there_are_as_many_browsers_as_safe_debug_ports() -> None:
    assert len(RESTRICTED_PORTS) == config.DEBUG_PORTS


@pytest.mark.parametrize(
    ("settings", "has_policy"),
    [
        ({}, False),
        ({"allow_hosts": ["a.test"]}, True),
        ({"deny_hosts": ["10.0.0.0/8"]}, True),
        ({"deny_private_networks": True}, True),
        ({"pinned_hosts": {"a.test": "10.0.0.1"}}, True),
    ],
)
def test_a_pool_has_a_network_policy_when_it_says_anything_about_hosts(
    settings: dict[str, object], has_policy: bool
) -> None:
    assert parse({"pools": {"default": settings}}).pools["default"].has_network_policy is has_policy
