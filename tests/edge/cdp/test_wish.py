"""How long an upgrade waits: as its client says, else as its pool says, and never so long that the client gives up."""

from __future__ import annotations

import pytest

from tabherd.edge.cdp.wish import WAIT_MAX_MS, Wish, wait_ms


@pytest.mark.parametrize(
    ("asked", "pool", "waits"),
    [(None, 0, 0), (None, 20_000, 20_000), (None, 30_000, WAIT_MAX_MS), (5, 30_000, 5), (120_000, 0, WAIT_MAX_MS)],
)
def test_an_upgrade_waits_as_told_and_not_until_its_client_gives_up(asked: int | None, pool: int, waits: int) -> None:
    assert wait_ms(Wish(wait_ms=asked), pool) == waits


def test_a_client_that_gives_up_after_half_a_minute_hears_why_before() -> None:
    assert WAIT_MAX_MS < 30_000
