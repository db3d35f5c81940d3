"""Which verbs were under way when something went wrong: what a run of histories has tried, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Coverage:
    """What one history, or many of them, have tried."""

    def __init__(self) -> None:
        # How often each verb was called, and each fault struck.
        self.verbs: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        # How often a fault struck while a verb was under way.
        self.both: Counter[tuple[str, str]] = Counter()
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def call(self, verb: str) -> Iterator[None]:
        """That verb is under way."""
        self.verbs[verb] += 1
        self._under_way[verb] += 1
        try:
            yield
        finally:
            self._under_way[verb] -= 1

    def strike(self, fault: str) -> None:
        """Something goes wrong for everything that is under way."""
        self.faults[fault] += 1
        for verb, count in self._under_way.items():
            if count:
                self.both[verb, fault] += 1

    def struck(self, fault: str, verb: str) -> None:
        """Something goes wrong for one verb."""
        self.verbs.setdefault(verb, 0)
        self.faults[fault] += 1
        self.both[verb, fault] += 1

    def add(self, other: Coverage) -> None:
        self.verbs.update(other.verbs)
        self.faults.update(other.faults)
        self.both.update(other.both)

    def table(self) -> str:
        """Verbs by faults, with how often each pair was tried."""
        faults = sorted(self.faults)
        rows = [["", "calls", *(str(number) for number in range(1, len(faults) + 1))]]
        for verb in sorted(self.verbs):
            rows.append([verb, str(self.verbs[verb]), *(str(self.both[verb, fault]) for fault in faults)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        key = [f"{number:>3}  {fault} ({self.faults[fault]})" for number, fault in enumerate(faults, 1)]
        return "\n".join((*_lines(rows, widths), "", *key))


def _lines(rows: Iterable[list[str]], widths: list[int]) -> Iterator[str]:
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join((row[0].ljust(widths[0]), *cells))
