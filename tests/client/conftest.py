"""A server with prepared answers, on a socket or on paper, for every test of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.canned import CannedServer
from tests.client.scripted import clock as clock
from tests.client.scripted import script as script


@pytest.fixture
def canned() -> Iterator[CannedServer]:
    with CannedServer() as server:
        yield server
