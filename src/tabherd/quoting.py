"""Quotes what others wrote, such as pages and other agents, so that it cannot pass for what tabherd says.

Invariant: a quotation is one line, begins and ends with quotes that stand nowhere unescaped inside, and has a length;
that something was cut off is said behind it, where its author cannot write.
"""

from __future__ import annotations

import json
import re
from typing import Final

# What a reader is shown of a name, a title or an address.
NAME_MAX_CHARS: Final = 200
# And of a message.
MESSAGE_MAX_CHARS: Final = 1_000
# Whatever ends a line for anybody, moves a cursor, turns the direction of writing, or is there and not seen.
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def quoted(text: str, chars_max: int = NAME_MAX_CHARS) -> str:
    """The text as a JSON string on one line, and behind it how much of it that is if it is not all."""
    quotation = one_line(json.dumps(text[:chars_max], ensure_ascii=False))
    return quotation if len(text) <= chars_max else f"{quotation} (the first {chars_max} of {len(text)} characters)"


def one_line(text: str) -> str:
    """The text with everything that does not show as itself escaped, as JSON does it: JSON stays the same JSON."""
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)
