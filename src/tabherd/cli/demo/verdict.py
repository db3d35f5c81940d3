"""A judged guarantee: what it is, the numbers it was judged by, and whether it held."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from .record import Record

Kind = TypeVar("Kind")


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One row of the table at the end."""

    guarantee: str
    # The numbers in words, for people.
    evidence: str
    held: bool
    # The same numbers, for programs.
    numbers: dict[str, float]


def verdict(guarantee: str, evidence: str, held: bool, **numbers: float) -> Verdict:
    """A row; its numbers are given by name."""
    return Verdict(guarantee=guarantee, evidence=evidence, held=held, numbers=numbers)


def told(record: Record, kind: type[Kind]) -> list[Kind]:
    """What agents told of that kind, in order."""
    return [each for each in record.told if isinstance(each, kind)]
