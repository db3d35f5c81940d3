"""Identifiers: a prefix that says what it is, a time that makes it sortable, and chance that makes it unique.

`ses_06b3k9z2q0w1x5y8...`: 10 characters of milliseconds, 13 of chance, in a base 32 that has no look-alikes. What there
are thousands of a second (tasks, commands, entries of the audit trail) has ordered ids, which cost a fraction: 3 of the
13 characters number those of one millisecond, and the chance of the other 10 is that of this life of the node. A
command's id also carries the epoch of the node that accepted it, so that a later life of the node can tell that it
never saw the command end.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
TIME_CHARS = 10
CHANCE_CHARS = 13
EPOCH_CHARS = 5
# Of an ordered id, as long as the others: bits that number those of one millisecond, and what is left to chance.
ORDER_BITS = 15
ORDERED_CHANCE_CHARS = CHANCE_CHARS - ORDER_BITS // 5

# Three digits at a time.
_TRIPLES = tuple(first + second + third for first in ALPHABET for second in ALPHABET for third in ALPHABET)


def encode(value: int, width: int) -> str:
    """The number in base 32, padded, most significant first, so that text order is number order."""
    assert 0 <= value < 1 << (5 * width), "the number does not fit"
    triples = [_TRIPLES[(value >> shift) & 32_767] for shift in range(15 * ((width - 1) // 3), -1, -15)]
    return "".join(triples)[-width:]


def decode(text: str) -> int:
    """The inverse of `encode`; raises ValueError on a character outside the alphabet."""
    value = 0
    for char in text:
        value = value * 32 + ALPHABET.index(char)
    return value


class Ids:
    """Mints identifiers for one life of one node."""

    def __init__(self, clock: Callable[[], int], chance: Random, epoch: int) -> None:
        self._clock = clock
        self._chance = chance
        self._epoch = encode(epoch, EPOCH_CHARS)
        # What the ordered ids of this life end in.
        self._end = encode(chance.getrandbits(5 * ORDERED_CHANCE_CHARS), ORDERED_CHANCE_CHARS)
        # The place of the last ordered id: its moment and its number within it.
        self._ordered = 0
        # The moment of the last id, as it is written.
        self._moment = (-1, "")

    def mint(self, prefix: str) -> str:
        """A fresh id such as `ses_...`."""
        chance = encode(self._chance.getrandbits(5 * CHANCE_CHARS), CHANCE_CHARS)
        return f"{prefix}_{self._written(self._clock())}{chance}"

    def mint_command(self) -> str:
        """A fresh command id, which carries the epoch."""
        return f"cmd_{self._epoch}{self._ordered_tail()}"

    def mint_ordered(self, prefix: str) -> str:
        """A fresh id that sorts after every one of these before, also within one millisecond."""
        return f"{prefix}_{self._ordered_tail()}"

    def _ordered_tail(self) -> str:
        self._ordered = max(self._ordered + 1, self._clock() << ORDER_BITS)
        return f"{self._written(self._ordered >> ORDER_BITS)}{_TRIPLES[self._ordered & 32_767]}{self._end}"

    def _written(self, moment: int) -> str:
        """Many ids are of one millisecond, which is written once."""
        if moment != self._moment[0]:
            self._moment = moment, encode(moment, TIME_CHARS)
        return self._moment[1]


def epoch_of_command(command_id: str) -> int | None:
    """The epoch of the node life that minted it, or None if it is not a command id."""
    tail = command_id.removeprefix("cmd_")
    if tail == command_id or len(tail) != EPOCH_CHARS + TIME_CHARS + CHANCE_CHARS:
        return None
    try:
        decode(tail)
    except ValueError:
        return None
    return decode(tail[:EPOCH_CHARS])
