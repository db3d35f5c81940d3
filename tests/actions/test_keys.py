"""The keys of a keyboard."""

from __future__ import annotations

import pytest

from tabherd.actions.keys import TYPED, chord_of, modifier_bits, needs_shift, strokes_of
from tabherd.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Enter", ["Enter"]),
        ("enter", ["Enter"]),
        ("a", ["a"]),
        ("A", ["A"]),
        ("Control+A", ["Control", "a"]),
        ("ctrl+shift+a", ["Control", "Shift", "A"]),
        ("Shift+Tab", ["Shift", "Tab"]),
        ("Shift+1", ["Shift", "!"]),
        ("+", ["+"]),
        ("Control++", ["Control", "+"]),
        ("Esc", ["Escape"]),
        ("Space", [" "]),
        ("KeyA", ["a"]),
        ("F12", ["F12"]),
        ("ü", ["ü"]),
        ("Shift", ["Shift"]),
        ("ShiftRight+a", ["Shift", "A"]),
        ("Numpad5", ["5"]),
        ("NumpadEnter", ["Enter"]),
        ("MediaPlayPause", ["MediaPlayPause"]),
    ],
)
def test_a_chord_is_its_keys_in_the_order_they_go_down(text: str, keys: list[str]) -> None:
    assert [key.key for key in chord_of(text)] == keys


@pytest.mark.parametrize("text", ["Nope", "Control+Nope", "a+b", "", "Control+", "++a"])
def test_what_is_no_key_is_the_callers_mistake(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chord_of(text)
    assert caught.value.details["field"] == "key"


def test_a_command_types_nothing() -> None:
    assert chord_of("Control+A")[-1].text == ""
    assert chord_of("Shift+A")[-1].text == "A"


def test_modifiers_are_told_as_bits() -> None:
    assert modifier_bits(["Alt", "Shift"]) == 9


def test_every_printable_ascii_character_is_on_the_keyboard() -> None:
    assert all(TYPED[chr(code)].text == chr(code) for code in range(0x20, 0x7F))
    assert [char for char in "aA1!/?" if needs_shift(char)] == ["A", "!", "?"]


@pytest.mark.parametrize(
    ("text", "strokes"),
    [
        ("ab c", ["a", "b", " ", "c"]),
        ("日本語", ["日本語"]),
        ("日本 語", ["日本", " ", "語"]),
        ("👨\u200d👩\u200d👧", ["👨\u200d👩\u200d👧"]),
        ("x🇦🇹y", ["x", "🇦🇹", "y"]),
        ("👍🏽!", ["👍🏽", "!"]),
        ("ne\u0301e", ["n", "e\u0301", "e"]),
        ("1\ufe0f\u20e32", ["1\ufe0f\u20e3", "2"]),
        ("a\r\nb\n\nc", ["a", "\r", "b", "\n", "\n", "c"]),
        ("", []),
    ],
)
def test_what_is_on_no_key_is_typed_in_one_piece_with_its_marks(text: str, strokes: list[str]) -> None:
    assert list(strokes_of(text)) == strokes
