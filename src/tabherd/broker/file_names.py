"""Names under which the files of a session are served: whatever a site or a caller proposes, made harmless and unique.

A name has no path in it, nothing that cannot be seen or turns the reading direction, no dot in front (it would be
hidden), and fits into a file name on disk with room for a number. Its extension survives, because programs go by it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container
from itertools import count
from typing import Final

# File systems take 255; the rest is for " (1234)".
NAME_MAX_BYTES: Final = 200
# What is taken for an extension when a name has to be cut.
EXTENSION_MAX_BYTES: Final = 32
# What proposes nothing usable gets this name.
NAMELESS: Final = "file"

_SEPARATORS: Final = re.compile(r"[/\\]")
# Control, format (which has the marks that reverse text), half surrogates, and line and paragraph separators.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean_name(proposed: str) -> str:
    """The last part of what was proposed, made harmless."""
    last = _SEPARATORS.split(proposed.rstrip("/\\"))[-1]
    seen = "".join("_" if unicodedata.category(letter) in _UNSEEN else letter for letter in last)
    bare = seen.strip().lstrip(".").strip()
    return _cut(bare) or NAMELESS


def unique_name(name: str, taken: Container[str]) -> str:
    """The name, with a number before its extension if somebody has it already."""
    if name not in taken:
        return name
    stem, extension = _split(name)
    # Ends: there are fewer names taken than numbers.
    return next(tried for number in count(1) if (tried := f"{stem} ({number}){extension}") not in taken)


def _cut(name: str) -> str:
    if len(name.encode()) <= NAME_MAX_BYTES:
        return name
    stem, extension = _split(name)
    return stem.encode()[: NAME_MAX_BYTES - len(extension.encode())].decode(errors="ignore").rstrip() + extension


def _split(name: str) -> tuple[str, str]:
    """Stem and extension, with its dot; a name that is all extension, or has an absurd one, has none."""
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension.encode()) > EXTENSION_MAX_BYTES:
        return name, ""
    return stem, dot + extension
