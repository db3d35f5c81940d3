"""The keyboard's bytes as keys. Sans I/O.

Invariants: a sequence that arrives in pieces is one key; what is no known key is dropped whole, so that none of its
bytes is taken for a letter; what is kept of an unfinished sequence is bounded.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

# A key is the character that it types, or one of these names.
UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE = "enter", "escape", "backspace"

# How long the rest of a sequence may take to arrive before Escape alone is what was pressed.
ESCAPE_S: Final = 0.1
# No key sends a longer one.
SEQUENCE_MAX: Final = 32

# What terminals send for keys that type nothing: CSI with parameters, SS3, and the Linux console's function keys.
SEQUENCE: Final = re.compile(r"\x1b\[\[[A-E]|\x1b\[(?P<params>[0-?]*)[ -/]*(?P<last>[@-Z\\-~])|\x1bO(?P<ss3>[ -~])")
BEGUN: Final = re.compile(r"\x1b(\[\[?|\[[0-?]*[ -/]*|O)?")
BY_LETTER: Final = {"A": UP, "B": DOWN, "H": HOME, "F": END, "M": ENTER}
# Of sequences that end with ~, by their first parameter.
BY_NUMBER: Final = {"1": HOME, "7": HOME, "4": END, "8": END, "5": PAGE_UP, "6": PAGE_DOWN}
CONTROLS: Final = {"\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\x08": BACKSPACE}


class KeyDecoder:
    """Takes what each read brought, and says which keys these are."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # What has arrived of a sequence that is not complete.
        self._begun = ""

    @property
    def is_waiting(self) -> bool:
        """Whether it takes more bytes, or time, to know which key was pressed."""
        return bool(self._begun)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are complete with this."""
        text = self._begun + self._decoder.decode(data)
        self._begun = ""
        keys: list[str] = []
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                keys += _typed(text[at])
                at += 1
            elif found := SEQUENCE.match(text, at):
                keys += _named(found)
                at = found.end()
            elif BEGUN.fullmatch(text, at):
                # One that is too long to be a key is dropped with what has come of it.
                self._begun = text[at:] if len(text) - at < SEQUENCE_MAX else ""
                break
            else:
                # Escape, and then something else: two keys, however quickly.
                keys.append(ESCAPE)
                at += 1
        return keys

    def give_up(self) -> list[str]:
        """No more comes: Escape was pressed if nothing but that has arrived."""
        begun, self._begun = self._begun, ""
        return [ESCAPE] if begun == "\x1b" else []


def _typed(character: str) -> list[str]:
    if character in CONTROLS:
        return [CONTROLS[character]]
    return [character] if character.isprintable() else []


def _named(found: re.Match[str]) -> list[str]:
    """The key that a sequence stands for, whatever is held down with it; none if it is not ours."""
    params, last = found["params"], found["last"] or found["ss3"]
    key = BY_NUMBER.get((params or "").partition(";")[0]) if last == "~" else BY_LETTER.get(last or "")
    return [] if key is None else [key]
