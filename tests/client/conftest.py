"""A server with prepared answers, for every test of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.canned import CannedServer


@pytest.fixture
def canned() -> Iterator[CannedServer]:
    with CannedServer() as server:
        yield server
