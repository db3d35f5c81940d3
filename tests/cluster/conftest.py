"""What tests of several nodes share: one PostgreSQL for the process, and nodes for a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.rig.postgres import Postgres, running_postgres
from tests.server.effects_site import EffectsSite
from tests.server.local_site import serving

from .rig import Cluster, cluster_on


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as started:
        yield started


@pytest.fixture
def effects() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


@pytest.fixture(scope="module")
def empty_cluster(
    postgres: Postgres, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster without nodes yet, in a schema of its own."""
    schema = request.module.__name__.rpartition(".")[2]
    with cluster_on(postgres, schema, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def nodes_of_file(empty_cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """Two nodes that know each other, with the settings and the environments that the file says."""
    empty_cluster.start(getattr(request.module, "SETTINGS", {}), getattr(request.module, "ENVIRONMENTS", ({}, {})))
    return empty_cluster


@pytest.fixture
def pair(nodes_of_file: Cluster) -> Iterator[Cluster]:
    """The same, whole when a test begins; no session or lock of the test is left."""
    nodes_of_file.until_whole()
    yield nodes_of_file
    nodes_of_file.until_whole()
    nodes_of_file.clear()
