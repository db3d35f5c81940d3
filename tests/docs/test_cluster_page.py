"""The two nodes that the page on clusters has people try are a cluster: a session outlives the node of its opening."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.rig.postgres import Postgres, running_postgres
from tests.cli.running import Started
from tests.docs.snippets import follow

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.release]

# A death takes 10 s to be noticed here as well: sooner, one that lives on a busy machine is taken for dead.
SETTINGS = {"TABHERD_POOLS__DEFAULT__WARM": "1"}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as started:
        yield started


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Path]:
    """Where the page makes its nodes; whatever becomes of the page, none of them stays."""
    try:
        yield tmp_path
    finally:
        for name in ("node-a", "node-b"):
            Started(tmp_path / name).clean_up()


def test_a_session_outlives_the_node_that_it_was_opened_at(postgres: Postgres, nodes: Path) -> None:
    said = follow("docs/how-to/cluster.md", None, nodes, variables=SETTINGS | {"TABHERD_STORE": postgres.tcp_url})
    first, second = said.values()
    assert first.rstrip().endswith("Hello, cluster")
    assert "Hello, cluster" in second
    assert "left" in second
