"""Identifiers: a prefix that says what it is, a time that makes it sortable, and chance that makes it unique.

`ses_06b3k9z2q0w1x5y8...`: 10 characters of milliseconds, 13 of chance, in a base 32 that has no look-alikes. A
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


# Two digits at a time: ids are minted several times per command.
_PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)


def encode(value: int, width: int) -> str:
    """The number in base 32, padded, most significant first, so that text order is number order."""
    assert 0 <= value < 1 << (5 * width), "the number does not fit"
    pairs = [_PAIRS[(value >> shift) & 1023] for shift in range(10 * ((width - 1) // 2), -1, -10)]
    return "".join(pairs)[width % 2 :]


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
        # The place of the last ordered id: its moment and its number within it.
        self._ordered = 0
        # The moment of the last id, as it is written.
        self._moment = (-1, "")

    def mint(self, prefix: str) -> str:
        """A fresh id such as `ses_...`."""
        return f"{prefix}_{self._tail()}"

    def mint_command(self) -> str:
        """A fresh command id, which carries the epoch."""
        return f"cmd_{self._epoch}{self._tail()}"

    def mint_ordered(self, prefix: str) -> str:
        """A fresh id that sorts after every one of these before, also within one millisecond."""
        self._ordered = max(self._ordered + 1, self._clock() << ORDER_BITS)
        chance = encode(self._chance.getrandbits(5 * ORDERED_CHANCE_CHARS), ORDERED_CHANCE_CHARS)
        return f"{prefix}_{encode(self._ordered, TIME_CHARS + ORDER_BITS // 5)}{chance}"

    def _tail(self) -> str:
        now = self._clock()
        if now != self._moment[0]:
            self._moment = now, encode(now, TIME_CHARS)
        return self._moment[1] + encode(self._chance.getrandbits(5 * CHANCE_CHARS), CHANCE_CHARS)


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
