"""The histories of several nodes, put together."""

from __future__ import annotations

from typing import Any

import msgspec

from tabherd import wire
from tabherd.broker.views import rfc3339
from tabherd.edge.merged_history import WORST, merge_history

NAMES = wire.HistorySeries.__struct_fields__
# Some interval since 1970.
BEGIN = 800_000_000


def node(*numbers: float | None, begin: int = BEGIN) -> wire.History:
    """A history that has these numbers in every series."""
    series = wire.HistorySeries(**{name: list(numbers) for name in NAMES})
    return wire.History(interval_ms=2_000, begins_at=rfc3339(begin * 2_000), series=series)


def merged(mine: wire.History, *others: wire.History) -> wire.History:
    return merge_history(mine, list(others), [])


def test_counts_add_up_and_of_the_rest_the_worst_node_counts() -> None:
    both = merged(node(1, 2.5), node(3, 4))
    assert both.begins_at == rfc3339(BEGIN * 2_000)
    for name in NAMES:
        assert getattr(both.series, name) == ([3, 4] if name in WORST else [4, 6.5]), name


def test_every_percentile_is_the_worst() -> None:
    assert {name for name in NAMES if "_p50" in name or "_p95" in name} < WORST


def test_what_only_one_node_knows_is_its_own_and_what_none_knows_is_null() -> None:
    assert merged(node(1, None, None), node(None, 2, None)).series.commands == [1, 2, None]


def test_intervals_of_the_same_moment_are_put_together() -> None:
    old = node(1, 1, 1, 1)
    young = node(10, 10, begin=BEGIN + 2)
    for both in (merged(old, young), merged(young, old)):
        assert both.begins_at == rfc3339(BEGIN * 2_000)
        assert both.series.commands == [1, 1, 11, 11]


def test_an_interval_that_one_node_has_and_another_not_yet_waits_for_both() -> None:
    ahead, behind = node(1, 1, 1), node(10, 10)
    assert merged(ahead, behind).series.commands == [11, 11]
    assert merged(behind, ahead).series.commands == [11, 11]


def test_a_node_that_is_later_than_one_interval_is_not_waited_for() -> None:
    assert merged(node(1, 1, 1, 1, 1), node(10, 10)).series.commands == [11, 11, 1, 1]


def test_a_node_that_has_nothing_yet_changes_nothing() -> None:
    empty = node(begin=BEGIN + 9)
    assert merged(empty, node(1, 2)).series.commands == [1, 2]
    assert merged(node(1, 2), empty).series.commands == [1, 2]
    assert merged(empty, empty) == empty


def test_nodes_that_did_not_answer_are_named() -> None:
    def unreachable(missing: list[str], mine: wire.History) -> Any:
        return merge_history(mine, [], missing).unreachable

    assert unreachable(["nod_2"], node(1)) == ["nod_2"]
    assert unreachable(["nod_2"], node()) == ["nod_2"]
    assert unreachable([], node(1)) is msgspec.UNSET
