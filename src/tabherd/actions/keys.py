"""The keys of a US keyboard: what a browser is told when one goes down.

Pure: names and characters in, key events out. A character that the keyboard does not have is not a key; whoever types
inserts it as text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ..errors import InvalidRequest

MODIFIERS: Final = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
_ALIASES: Final = {
    "alt": "Alt",
    "cmd": "Meta",
    "command": "Meta",
    "control": "Control",
    "controlormeta": "Control",
    "ctrl": "Control",
    "del": "Delete",
    "down": "ArrowDown",
    "esc": "Escape",
    "left": "ArrowLeft",
    "meta": "Meta",
    "option": "Alt",
    "return": "Enter",
    "right": "ArrowRight",
    "shift": "Shift",
    "space": " ",
    "up": "ArrowUp",
}


KEYPAD: Final = 3
_HELD_KEYS: Final = {"Shift": 16, "Control": 17, "Alt": 18, "Meta": 91}


class Key(msgspec.Struct, frozen=True):
    """One key, as `KeyboardEvent` names it."""

    key: str
    code: str
    # The old keyCode, which pages still look at.
    number: int
    # What it types; empty for keys that type nothing.
    text: str = ""
    # Where it is when there are two of it: 1 left, 2 right, 3 keypad.
    location: int = 0


def _named() -> dict[str, Key]:
    plain = {
        "Backspace": 8,
        "CapsLock": 20,
        "Escape": 27,
        "PageUp": 33,
        "PageDown": 34,
        "End": 35,
        "Home": 36,
        "ArrowLeft": 37,
        "ArrowUp": 38,
        "ArrowRight": 39,
        "ArrowDown": 40,
        "PrintScreen": 44,
        "Insert": 45,
        "Delete": 46,
        "ContextMenu": 93,
        "NumLock": 144,
        "ScrollLock": 145,
        "Pause": 19,
        "Tab": 9,
        "AudioVolumeMute": 173,
        "AudioVolumeDown": 174,
        "AudioVolumeUp": 175,
        "MediaTrackNext": 176,
        "MediaTrackPrevious": 177,
        "MediaStop": 178,
        "MediaPlayPause": 179,
    }
    keys = {name: Key(name, name, number) for name, number in plain.items()}
    keys |= {f"F{number}": Key(f"F{number}", f"F{number}", 111 + number) for number in range(1, 25)}
    keys["Enter"] = Key("Enter", "Enter", 13, "\r")
    for name, number in _HELD_KEYS.items():
        keys[name] = Key(name, f"{name}Left", number, location=1)
    return keys


def _typed() -> dict[str, Key]:
    keys = {
        " ": Key(" ", "Space", 32, " "),
        "\n": Key("Enter", "Enter", 13, "\r"),
        "\r": Key("Enter", "Enter", 13, "\r"),
    }
    keys["\t"] = Key("Tab", "Tab", 9)
    for letter in "abcdefghijklmnopqrstuvwxyz":
        upper = letter.upper()
        for char in (letter, upper):
            keys[char] = Key(char, f"Key{upper}", ord(upper), char)
    for digit, shifted in zip("0123456789", ")!@#$%^&*(", strict=True):
        for char in (digit, shifted):
            keys[char] = Key(char, f"Digit{digit}", ord(digit), char)
    others = {
        "Semicolon": (186, ";:"),
        "Equal": (187, "=+"),
        "Comma": (188, ",<"),
        "Minus": (189, "-_"),
        "Period": (190, ".>"),
        "Slash": (191, "/?"),
        "Backquote": (192, "`~"),
        "BracketLeft": (219, "[{"),
        "Backslash": (220, "\\|"),
        "BracketRight": (221, "]}"),
        "Quote": (222, "'\""),
    }
    for code, (number, chars) in others.items():
        for char in chars:
            keys[char] = Key(char, code, number, char)
    return keys


def _second() -> list[Key]:
    """Keys that are there twice, and are named by their place: the keypad, and modifiers on the right."""
    digits = [Key(digit, f"Numpad{digit}", 96 + int(digit), digit, KEYPAD) for digit in "0123456789"]
    signs = {
        "Multiply": (106, "*"),
        "Add": (107, "+"),
        "Subtract": (109, "-"),
        "Decimal": (110, "."),
        "Divide": (111, "/"),
    }
    return [
        *digits,
        *(Key(char, f"Numpad{name}", number, char, KEYPAD) for name, (number, char) in signs.items()),
        Key("Enter", "NumpadEnter", 13, "\r", KEYPAD),
        *(Key(name, f"{name}Right", number, location=2) for name, number in _HELD_KEYS.items()),
    ]


NAMED: Final = _named()
TYPED: Final = _typed()
# Every key by the place it has on the keyboard: KeyA, Digit1, ShiftLeft, ...
_BY_CODE: Final = {key.code: key for key in reversed((*NAMED.values(), *TYPED.values(), *_second()))}
# What a character's key types with Shift.
_SHIFTED: Final = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz0123456789;=,-./`[\\]'",
        'ABCDEFGHIJKLMNOPQRSTUVWXYZ)!@#$%^&*(:+<_>?~{|}"',
        strict=True,
    )
)
# What makes one character with the one before: accents, vowel signs, frames, and what joins two.
_MARKS: Final = frozenset({"Mn", "Mc", "Me"})
_JOINER: Final = "\u200d"
_NEEDS_SHIFT: Final = frozenset(_SHIFTED.values())


def strokes_of(text: str) -> Iterator[str]:
    """The text in the pieces it is typed in: a character that is a key, or a run that goes in as text.

    A character that is a key belongs to the run when marks follow it: e and an accent, 1 and the frame of a keycap.
    """
    run = ""
    for at, char in enumerate(text):
        if char == "\n" and text[at - 1 : at] == "\r":
            # The two are one end of a line.
            continue
        following = text[at + 1 : at + 2]
        if char not in TYPED or (char > " " and following and _is_mark(following)):
            run += char
            continue
        if run:
            yield run
            run = ""
        yield char
    if run:
        yield run


def _is_mark(char: str) -> bool:
    return char == _JOINER or unicodedata.category(char) in _MARKS


def modifier_bits(modifiers: Iterable[str]) -> int:
    bits = 0
    for each in modifiers:
        bits |= MODIFIERS[each]
    return bits


def needs_shift(char: str) -> bool:
    return char in _NEEDS_SHIFT


def chord_of(text: str) -> list[Key]:
    """The keys of `Control+Shift+A` in the order they go down, or `InvalidRequest`."""
    # A + at the end is the key itself, as in Control++.
    names = [*text[:-2].split("+"), "+"] if text.endswith("++") else [text] if text == "+" else text.split("+")
    keys = [_key(name, text) for name in names]
    if any(key.key not in MODIFIERS for key in keys[:-1]):
        raise InvalidRequest(
            f"'{text}': only {', '.join(MODIFIERS)} can be held while another key is pressed.", field="key"
        )
    held = {key.key for key in keys[:-1]}
    last = keys[-1]
    if "Shift" in held and last.key in _SHIFTED:
        keys[-1] = TYPED[_SHIFTED[last.key]]
    elif held and "Shift" not in held and len(last.key) == 1 and last.key.isupper():
        # Control+A is how people write it; nobody means Shift.
        keys[-1] = TYPED[last.key.lower()]
    if held - {"Shift"}:
        # With these a key is a command and types nothing.
        keys[-1] = msgspec.structs.replace(keys[-1], text="")
    return keys


def is_paste(text: str) -> bool:
    """Whether these keys make a page read the clipboard; what is no key does nothing."""
    try:
        keys = chord_of(text)
    except InvalidRequest:
        return False
    held, last = {key.key for key in keys[:-1]}, keys[-1]
    is_shortcut = (last.code == "KeyV" and held & {"Control", "Meta"}) or (last.code == "Insert" and "Shift" in held)
    return bool(is_shortcut) or last.key == "Paste"


def _key(name: str, text: str) -> Key:
    stripped = name if name == " " else name.strip()
    known = _ALIASES.get(stripped.lower(), stripped) if len(stripped) > 1 else stripped
    for table in (NAMED, TYPED, _BY_CODE):
        if known in table:
            return table[known]
    for key in NAMED.values():
        if key.key.lower() == known.lower():
            return key
    if len(known) == 1:
        # No key of this keyboard has it, but it is a key somewhere.
        return Key(known, "", 0, known)
    raise InvalidRequest(
        f"There is no key '{stripped[:50]}' in '{text[:100]}'.",
        action="Use a name like Enter, Escape, ArrowDown, F5, a character, or keys joined by +, like Control+A.",
        field="key",
    )
