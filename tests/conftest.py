"""Rules that hold for all tests."""

from __future__ import annotations

import functools
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from httpx._transports import default as httpx_transports
from hypothesis import settings
from tests.shared_server import server_of_all, shared_server

__all__ = ["server_of_all", "shared_server"]

# The same examples in every run, so that a commit has one verdict; `make soak` explores (HYPOTHESIS_PROFILE=explore).
# The time an example takes is the machine's business.
settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# A shell starts what it runs in the background deaf to Ctrl-C, and every process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every client of httpx reads the certificates of all the world's authorities, which takes longer than most requests of
# tests, none of which goes anywhere but to this machine, without TLS. So a process reads them once.
httpx_transports.create_ssl_context = functools.cache(httpx_transports.create_ssl_context)


# A logger that keeps how it was first used would outlive the test that set the logging up.
_configure_logging = structlog.configure
structlog.configure = lambda **settings: _configure_logging(**settings | {"cache_logger_on_first_use": False})


@pytest.fixture(autouse=True)
def logging_of_its_own() -> Iterator[None]:
    """A test that sets the logging up, as servers do at their start, does so for itself alone."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in a random order")
    parser.addoption("--sample", type=int, metavar="N", help="of a shuffled run: N tests and no more")


# Suites that share costly fixtures (a server, a browser that shows the dashboard, PostgreSQL), each with its worker.
HOMES = (
    ("dashboard", "actions", "parity"),
    ("server", "cdp_hostile", "hostile"),
    ("cluster", "campaign", "locks", "store", "races", "browsers", "egress", "ablated"),
    ("cdp", "cdp_life", "cdp_clients", "security", "live", "cli", "client", "mcp_server", "docs"),
)


# Last: after tests were deselected by their marks.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is not None:
        shuffle(items, random.Random(seed))
        spare = max(0, len(items) - (config.getoption("--sample") or len(items)))
        left_out = set(random.Random(seed).sample(range(len(items)), spare))
        config.hook.pytest_deselected(items=[items[number] for number in left_out])
        items[:] = [item for number, item in enumerate(items) if number not in left_out]
    elif workers := getattr(config, "workerinput", {}).get("workercount", 0):
        items[:] = at_home(items, workers)


def at_home(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in an order that `--dist worksteal` deals out well.

    Each worker begins with as many tests as any other. So each share begins with the suites of one home, and ends with
    tests that need no fixture: those are what idle workers steal.
    """
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    light = []
    for item in items:
        suite = item.path.relative_to(Path(__file__).parent).parts[0]
        homes = [number for number, home in enumerate(HOMES) if suite in home]
        (shares[homes[0] % workers] if homes else light).append(item)
    size = -(-len(items) // workers)
    for share in shares:
        room = max(0, size - len(share))
        share += light[:room]
        del light[:room]
    return [item for share in shares for item in share] + light


def shuffle(items: list[pytest.Item], chance: random.Random) -> None:
    """Shuffle the files and the tests of each: what is shared by a file is made once even so."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(str(item.path), []).append(item)
    shuffled = list(files.values())
    chance.shuffle(shuffled)
    for tests in shuffled:
        chance.shuffle(tests)
    items[:] = [item for tests in shuffled for item in tests]
