"""The little Markdown that the reference pages share."""

from __future__ import annotations

from collections.abc import Iterator


def row(*cells: str) -> str:
    """One line of a table; what would end a cell early is escaped."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def table(*headings: str) -> Iterator[str]:
    """The head of a table."""
    yield row(*headings)
    yield "|" + "---|" * len(headings)
