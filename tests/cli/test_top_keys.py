"""The keyboard's bytes become the keys that were pressed, however they arrive."""

from __future__ import annotations

import pytest

from tabherd.cli import top_keys as k
from tabherd.cli.top_keys import SEQUENCE_MAX, KeyDecoder

KEYS = [
    (b"\x1b[A", k.UP),
    (b"\x1bOA", k.UP),
    (b"\x1b[1;5B", k.DOWN),
    (b"\x1b[5~", k.PAGE_UP),
    (b"\x1b[6;2~", k.PAGE_DOWN),
    (b"\x1b[H", k.HOME),
    (b"\x1b[1~", k.HOME),
    (b"\x1bOF", k.END),
    (b"\x1b[4~", k.END),
    (b"\r", k.ENTER),
    (b"\n", k.ENTER),
    (b"\x1bOM", k.ENTER),
    (b"\x7f", k.BACKSPACE),
    (b"\x08", k.BACKSPACE),
    (b"x", "x"),
    ("é".encode(), "é"),
    ("日".encode(), "日"),
]


@pytest.mark.parametrize(("data", "key"), KEYS)
def test_a_key_is_known_by_what_it_sends(data: bytes, key: str) -> None:
    assert KeyDecoder().feed(data) == [key]


@pytest.mark.parametrize(("data", "key"), KEYS)
def test_a_key_that_arrives_byte_by_byte_is_the_same_key(data: bytes, key: str) -> None:
    decoder = KeyDecoder()
    assert [key for each in data for key in decoder.feed(bytes([each]))] == [key]
    assert not decoder.is_waiting


def test_several_keys_in_one_read_come_in_their_order() -> None:
    assert KeyDecoder().feed(b"j\x1b[Bx\x1b[5~y\r") == ["j", k.DOWN, "x", k.PAGE_UP, "y", k.ENTER]


@pytest.mark.parametrize(
    "data", [b"\x1b[15~", b"\x1b[200~", b"\x1b[[A", b"\x1bOP", b"\x1b[?1;2c", b"\x1b[3~", b"\x1b[Z"]
)
def test_what_is_no_key_of_ours_is_dropped_whole(data: bytes) -> None:
    decoder = KeyDecoder()
    assert decoder.feed(data) == []
    assert decoder.feed(b"y") == ["y"]


@pytest.mark.parametrize("data", [b"\x00", b"\t", b"\x1a", b"\x9b"])
def test_what_types_nothing_is_no_key(data: bytes) -> None:
    assert all(key.isprintable() for key in KeyDecoder().feed(data))
    assert KeyDecoder().feed(data) in ([], ["\N{REPLACEMENT CHARACTER}"])


def test_escape_is_known_only_when_nothing_follows_it() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.is_waiting
    assert decoder.give_up() == [k.ESCAPE]
    assert not decoder.is_waiting


def test_escape_and_then_another_key_are_two_keys() -> None:
    assert KeyDecoder().feed(b"\x1bq") == [k.ESCAPE, "q"]
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b\x1b") == [k.ESCAPE]
    assert decoder.give_up() == [k.ESCAPE]


def test_a_sequence_that_never_ends_is_given_up_and_is_no_escape() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b[1;") == []
    assert decoder.give_up() == []
    assert decoder.feed(b"q") == ["q"]


def test_what_is_kept_of_a_sequence_is_bounded() -> None:
    decoder = KeyDecoder()
    for _ in range(SEQUENCE_MAX):
        decoder.feed(b"\x1b[" + b"1" * 1_000)
    assert not decoder.is_waiting
