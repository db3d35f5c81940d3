"""Tokens: who may call, kept as hashes in the store, checked in constant time, and remembered for a moment.

A token is `th_` and 43 URL-safe characters (256 random bits), so a plain SHA-256 cannot be guessed backwards and
needs no salt. The store has only hashes; the memory of recent callers is keyed by them too. A revoked token is
refused at once on this node and after `REMEMBER_S` on others that share the store.

The admin's token is a file in the state directory that only its owner may read. One that others can read or that
belongs to somebody else is refused, not repaired: it may have leaked, and only a new token undoes that.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ..core.model import Credential, changed
from ..errors import InvalidRequest, StateConflict
from ..store.base import Applied, Insert, Put, Store, Update

TOKEN_FORM: Final = re.compile(r"th_[A-Za-z0-9_-]{43}")
ADMIN_TOKEN_FILE: Final = "admin.token"
# The agent an admin is when it names no other; no agent's token may carry it.
ADMIN_AGENT: Final = "admin"
# How long a credential is trusted without asking the store again.
REMEMBER_S: Final = 5.0
# How many credentials are remembered.
REMEMBER_MAX: Final = 10_000
# How often a revocation decides again before it gives up.
DECIDE_AGAIN_MAX: Final = 10


def new_token() -> str:
    """A fresh token."""
    return "th_" + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Credentials:
    """The tokens that a store knows."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        # By hash: the credential and until when it is trusted, oldest first.
        self._remembered: dict[str, tuple[Credential, float]] = {}
        # Grows with each revocation, so that a read that began before one is not remembered after it.
        self._revocations = 0

    async def create(self, agent_id: str, scopes: Iterable[str]) -> tuple[str, Credential]:
        """A new token for that agent; the only time it is seen in clear."""
        granted = tuple(sorted(set(scopes)))
        if agent_id == ADMIN_AGENT and "admin" not in granted:
            raise InvalidRequest(f"agentId: '{ADMIN_AGENT}' is the admin's own name.", field="agentId")
        token = new_token()
        row = Credential(
            id="crd_" + secrets.token_hex(12),
            token_hash=hash_of(token),
            agent_id=agent_id,
            scopes=granted,
            created_at=time.time_ns() // 1_000_000,
        )
        outcome = await self._store.apply(Insert(row))
        assert isinstance(outcome, Applied), "a random id was taken"
        return token, row

    async def install_admin(self, token: str, node_id: str) -> None:
        """Make the state directory's token an admin's. The one that this node had before ends with it."""
        row = Credential(
            id=f"crd_admin_{node_id}",
            token_hash=hash_of(token),
            agent_id=ADMIN_AGENT,
            scopes=("admin",),
            created_at=time.time_ns() // 1_000_000,
        )
        await self._store.apply(Put(row))

    async def authenticate(self, token: str) -> Credential | None:
        """The credential behind a token, or None when it is malformed, unknown or revoked."""
        hashed = hash_of(token)
        known = self._remembered.get(hashed)
        if known is not None and self._clock() < known[1]:
            credential = known[0]
        else:
            # Only what looks like a token may cost a read.
            found = await self._look_up(hashed) if TOKEN_FORM.fullmatch(token) else None
            if found is None:
                return None
            credential = found
        return credential if hmac.compare_digest(credential.token_hash, hashed) else None

    async def find(self, credential_id: str) -> Credential | None:
        """The credential of that id, unless it was revoked."""
        row = await self._store.get(Credential, credential_id)
        return None if row is None or row.revoked_at else row

    def is_remembered(self, credential: Credential) -> bool:
        """Whether it was found valid a moment ago and not revoked since; costs no read."""
        known = self._remembered.get(credential.token_hash)
        return known is not None and self._clock() < known[1]

    async def is_valid(self, credential: Credential) -> bool:
        """Whether it still stands: a socket outlives the moment for which its token was looked at."""
        return await self._look_up(credential.token_hash) is not None

    async def revoke(self, credential_id: str) -> bool:
        """End a token now. False when there is none of that id, or it had ended already."""
        for _ in range(DECIDE_AGAIN_MAX):
            row = await self._store.get(Credential, credential_id)
            if row is None or row.revoked_at:
                return False
            outcome = await self._store.apply(Update(changed(row, revoked_at=time.time_ns() // 1_000_000)))
            if isinstance(outcome, Applied):
                self._revocations += 1
                self._remembered.pop(row.token_hash, None)
                return True
        raise StateConflict("The credential kept changing while it was revoked.", credentialId=credential_id)

    async def _look_up(self, hashed: str) -> Credential | None:
        self._remembered.pop(hashed, None)
        revocations = self._revocations
        rows = await self._store.select(Credential, {"token_hash": hashed}, limit=1)
        if not rows or rows[0].revoked_at:
            return None
        if revocations == self._revocations:
            if len(self._remembered) >= REMEMBER_MAX:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[hashed] = (rows[0], self._clock() + REMEMBER_S)
        return rows[0]


def ensure_admin_token(state_dir: Path) -> str:
    """The admin's token of that state directory, made on the first call.

    Written whole under another name and then linked, so that nobody ever reads half a token and of two that start at
    once one wins and both use its token.
    """
    path = state_dir / ADMIN_TOKEN_FILE
    with contextlib.suppress(FileNotFoundError):
        return _read_admin_token(path)
    draft = state_dir / f".{ADMIN_TOKEN_FILE}.{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(new_token() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    return _read_admin_token(path)


def _read_admin_token(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unfit(path, f"cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise _unfit(path, "is not a plain file")
        if about.st_uid != os.geteuid():
            raise _unfit(path, "belongs to another user")
        if about.st_mode & 0o077:
            raise _unfit(path, f"can be read by others (mode {about.st_mode & 0o777:04o}), so it may have leaked")
        token = file.read(200).strip()
    if not TOKEN_FORM.fullmatch(token):
        raise _unfit(path, "does not hold a token")
    return token


def _unfit(path: Path, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The admin token {path} {why}.",
        action=f"Remove {path} and start again; a new token is made.",
        field=ADMIN_TOKEN_FILE,
    )
