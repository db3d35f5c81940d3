"""`token`: making, listing and revoking the credentials of agents."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from .. import wire
from ..client.sync import Tabherd
from .output import Voice

UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
SPAN: Final = re.compile(r"(?P<count>\d{1,9})(?P<unit>[smhdw])")
HEADINGS: Final = ("token", "agent", "scopes", "made", "expires")
# For lists that have tokens in them that are over.
HEADINGS_OF_ALL: Final = (*HEADINGS, "revoked")


def new(voice: Voice, agent: str, scopes: list[str] | None, expires_in_s: int | None) -> None:
    """Make one and print it, alone."""
    with Tabherd(patience_s=0) as herd:
        made = herd.new_token(agent, scopes, expires_in_s=expires_in_s)
    voice.answer(made, made.token)


def ls(voice: Voice, *, agent: str | None, is_all: bool) -> None:
    """One line per token that is good, or per token that ever was; oldest first."""
    with Tabherd(patience_s=0) as herd:
        tokens = herd.tokens(agent)
    tokens.sort(key=lambda token: (token.created_at, token.token_id))
    if not is_all:
        now = datetime.now(UTC)
        tokens = [token for token in tokens if _is_good(token, now)]
    headings = HEADINGS_OF_ALL if is_all else HEADINGS
    rows = [_row(token)[: len(headings)] for token in tokens]
    voice.table(wire.TokenPage(tokens=tokens), headings, rows, empty="No tokens.", spare=("made", "scopes"))


def revoke(voice: Voice, token_ids: list[str]) -> None:
    """End each of them."""
    with Tabherd(patience_s=0) as herd:
        for token_id in token_ids:
            herd.revoke_token(token_id)
    voice.answer({"revoked": token_ids}, "\n".join(f"Revoked {token_id}." for token_id in token_ids))


def parse_span(text: str) -> int:
    """`30d`, `12h`, `90m`, `2w` or `45s` in seconds; raises ValueError for what is none."""
    found = SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is not a number with s, m, h, d or w, such as 30d.")
    return int(found["count"]) * UNITS_S[found["unit"]]


def _is_good(token: wire.TokenView, now: datetime) -> bool:
    is_expired = token.expires_at is not None and datetime.fromisoformat(token.expires_at) <= now
    return token.revoked_at is None and not is_expired


def _row(token: wire.TokenView) -> tuple[str, ...]:
    return (
        token.token_id,
        token.agent_id,
        ",".join(token.scopes),
        token.created_at,
        token.expires_at or "never",
        token.revoked_at or "",
    )
