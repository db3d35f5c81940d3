"""The server of a test worker: started once, used by every test that neither ends it nor changes its settings.

Variants of a pool are pools of this server; their Chromium starts with the first session that asks for it. A test has
agents of its own (`unique`), and after each test that used `shared_server` every session on it is ended.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cdp.site import FLAGS
from tests.cli.running import running_server
from tests.server.conftest import Server, end_sessions

# Settings that all pools have. A Chromium that is slow because the machine is busy is not taken for one that hangs.
COMMON = f"""
flags = {json.dumps(FLAGS)}
browsers_max = 1
sessions_per_browser = 60
max_active = 60
probe_limit_ms = 30000
"""

# Each pool's own settings, by its name.
POOLS: dict[str, str] = {
    "default": 'browser = "headless-shell"\nwarm = 1',
    # The full build.
    "full": 'browser = "chromium"\nbrowsers_min = 0\nwarm = 0',
    # Sessions that end with their last connection: at once, after a second, after three.
    "bound": 'browser = "headless-shell"\nbrowsers_min = 0\nwarm = 0\ndisconnect_grace_s = 0',
    "brief": 'browser = "headless-shell"\nbrowsers_min = 0\nwarm = 0\ndisconnect_grace_s = 1',
    "lenient": 'browser = "headless-shell"\nbrowsers_min = 0\nwarm = 0\ndisconnect_grace_s = 3',
    # Room for one session.
    "solo": 'browser = "headless-shell"\nbrowsers_min = 0\nwarm = 0\ndisconnect_grace_s = 0\nmax_active = 1',
    # Tabs in one profile.
    "shared": 'browser = "headless-shell"\nbrowsers_min = 0\nwarm = 0\nisolation = "shared"\nacquire_wait_ms = 30000',
    # Chromiums that tests kill; files of a session have little room.
    "mortal": 'browser = "headless-shell"\nbrowsers_min = 0\nwarm = 0\nshrink_after_s = 5\nbreaker_crashes = 1000\n'
    "files_max_bytes = 4194304",
    # Sessions that are soon found idle.
    "hasty": 'browser = "headless-shell"\nbrowsers_min = 0\nwarm = 0\nshrink_after_s = 5\nidle_ttl_s = 3\n'
    "heartbeat_s = 1\nstale_after_s = 6",
    # One session of a key at a time: whoever comes second waits. The leases of killed processes end at once.
    "keyed": 'browser = "headless-shell"\nbrowsers_min = 0\nwarm = 0\nmax_active_per_key = 1\n'
    "owner_dead_grace_ms = 100",
}

_numbers = itertools.count(1)


def unique(name: str) -> str:
    """A name that no other test of this worker has."""
    return f"{name}-{next(_numbers)}"


def settings() -> str:
    """The server's configuration file."""
    return "".join(f"[pools.{name}]\n{_of_pool(own)}\n" for name, own in POOLS.items())


def _of_pool(own: str) -> str:
    """The settings that all have and the pool's own, which win."""
    lines = (COMMON + own).split("\n")
    return "\n".join({line.partition(" = ")[0]: line for line in lines}.values())


@pytest.fixture(scope="session")
def server_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The worker's server. Tests take `shared_server`; fixtures of a wider scope take this one."""
    directory: Path = tmp_path_factory.mktemp("shared")
    config = directory / "tabherd.toml"
    config.write_text(settings())
    with running_server(directory / "state", {"TABHERD_CONFIG": str(config)}) as started:
        yield Server(started.state, started)


@pytest.fixture
def shared_server(server_of_all: Server) -> Iterator[Server]:
    """The worker's server, without the sessions of earlier tests."""
    yield server_of_all
    with server_of_all.client() as admin:
        end_sessions(admin)
