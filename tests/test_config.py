"""Settings: file, environment, flags, in that order; what is wrong is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabherd import config
from tabherd.browsers.debug_port import RESTRICTED_PORTS
from tabherd.config import Config, is_loopback, load, parse, state_dir
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
        ({"pools": {"default": {"max_active": 2, "max_active_per_agent": 3}}}, "pools.default.max_active"),
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


def test_attached_browsers_need_no_debug_port_of_ours() -> None:
    here = {f"p{n}": {"source": "attach", "endpoint": f"ws://127.0.0.1:{9000 + n}/x"} for n in range(30)}
    assert len(parse({"pools": here}).pools) == 31


def test_there_are_as_many_browsers_as_safe_debug_ports() -> None:
    assert len(RESTRICTED_PORTS) == config.DEBUG_PORTS
