"""What the crowd was told for sure: the log of acknowledgements, and how long each answer took.

Every line is on disk before the next request of that client is sent, so that a campaign that dies can still be read.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec


class Tried(msgspec.Struct, kw_only=True):
    """A thing that was asked for, whose effect has that name."""

    # Unique: what the site counts.
    who: str
    # command, task or cdp.
    kind: str
    # Under which it can be asked about; empty until it was acknowledged.
    id: str = ""
    # It may happen as often as it is attempted.
    is_idempotent: bool = False
    # It has a key under which the server keeps its outcome.
    is_keyed: bool = False
    # What the client was told: an outcome, or the code of an error; empty until then.
    told: str = ""


class Opened(msgspec.Struct, kw_only=True):
    """A session that was acknowledged."""

    id: str
    whose: str
    tab_id: str
    # Its end was acknowledged.
    is_released: bool = False


class Answered(msgspec.Struct, frozen=True):
    """One answer that was timed."""

    at_s: float
    kind: str
    ms: float


class Ledger:
    """Of all clients of one campaign, which live in one process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self.tried: dict[str, Tried] = {}
        self.sessions: dict[str, Opened] = {}
        self.answered: list[Answered] = []
        # Typed errors by code, as the clients heard them.
        self.refused: Counter[str] = Counter()
        # Things that each client got done, by its name.
        self.turns: Counter[str] = Counter()
        # What nobody should ever see.
        self.surprises: list[str] = []
        # The last fence of each named lock, and who is inside.
        self.fences: dict[str, int] = {}
        self.inside: dict[str, Any] = {}

    def close(self) -> None:
        self._file.close()

    def intend(self, tried: Tried) -> Tried:
        assert tried.who not in self.tried, f"{tried.who} was there already"
        self.tried[tried.who] = tried
        self._write("intend", tried)
        return tried

    def acknowledged(self, tried: Tried, id: str) -> None:
        tried.id = id
        self._write("acknowledged", tried)

    def told(self, tried: Tried, told: str) -> None:
        tried.told = told
        self._write("told", tried)

    def opened(self, session: Opened) -> None:
        self.sessions[session.id] = session
        self._write("opened", session)

    def released(self, session: Opened) -> None:
        session.is_released = True
        self._write("released", session)

    def surprise(self, what: str) -> None:
        self.surprises.append(what)
        self._write("surprise", what)

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Note how long it takes, if it is answered."""
        began = time.monotonic()
        yield
        ended = time.monotonic()
        self.answered.append(Answered(ended, kind, (ended - began) * 1000))

    def _write(self, event: str, what: Any) -> None:
        line = {"at": round(time.time(), 3), "event": event, "what": msgspec.to_builtins(what)}
        self._file.write(json.dumps(line) + "\n")
