"""Tokens: who may call, kept as hashes in the store, checked in constant time, and remembered for a moment.

A token is `th_` and 43 URL-safe characters (256 random bits), so a plain SHA-256 cannot be guessed backwards and
needs no salt. The store has only hashes; the memory of recent callers is keyed by them too. A revoked token is
refused at once on this node and after `REMEMBER_S` on others that share the store; one that has expired at once on all.
An agent may have several, each good until it is revoked or expires.

The admin's token is a file in the state directory that only its owner may read. One that others can read or that
belongs to somebody else is refused, not repaired: it may have leaked, and only a new token undoes that. The same goes
for every other secret there.
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

from .. import wire
from ..core.model import Credential, changed
from ..errors import InvalidRequest, ResourceNotFound, StateConflict, Unauthenticated
from ..store.base import Applied, Insert, Put, Store, Update
from .caller import Caller
from .views import rfc3339

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


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def is_expired(credential: Credential) -> bool:
    """Whether it has ended by itself."""
    return 0 < credential.expires_at <= now_ms()


def _unexpired(credential: Credential) -> Credential:
    if is_expired(credential):
        raise Unauthenticated(
            f"The token expired at {rfc3339(credential.expires_at)}.", action="Ask an admin for a new one."
        )
    return credential


class Credentials:
    """The tokens that a store knows."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        # By hash: the credential and until when it is trusted, oldest first.
        self._remembered: dict[str, tuple[Credential, float]] = {}
        # Grows with each revocation, so that a read that began before one is not remembered after it.
        self._revocations = 0

    async def create(
        self, agent_id: str, scopes: Iterable[str], expires_in_s: int | None = None
    ) -> tuple[str, Credential]:
        """A new token for that agent; the only time it is seen in clear. Those it has already stay good."""
        granted = tuple(sorted(set(scopes)))
        if agent_id == ADMIN_AGENT and "admin" not in granted:
            raise InvalidRequest(f"agentId: '{ADMIN_AGENT}' is the admin's own name.", field="agentId")
        token, now = new_token(), now_ms()
        row = Credential(
            id="crd_" + secrets.token_hex(12),
            token_hash=hash_of(token),
            agent_id=agent_id,
            scopes=granted,
            created_at=now,
            expires_at=0 if expires_in_s is None else now + 1_000 * expires_in_s,
        )
        outcome = await self._store.apply(Insert(row))
        assert isinstance(outcome, Applied), "a random id was taken"
        return token, row

    async def install_admin(self, token: str, node_id: str) -> bool:
        """Make the state directory's token an admin's. The one that this node had before ends with it.

        False when this very token was revoked: it stays so, and another one is needed.
        """
        row = Credential(
            id=f"crd_admin_{node_id}",
            token_hash=hash_of(token),
            agent_id=ADMIN_AGENT,
            scopes=("admin",),
            created_at=now_ms(),
        )
        before = await self._store.get(Credential, row.id)
        if before is not None and before.token_hash == row.token_hash:
            return not before.revoked_at
        await self._store.apply(Put(row))
        return True

    async def authenticate(self, token: str) -> Credential | None:
        """The credential behind a token, or None when it is malformed, unknown or revoked.

        Raises `Unauthenticated` for one that has expired, which its holder may be told.
        """
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
        return _unexpired(credential) if hmac.compare_digest(credential.token_hash, hashed) else None

    async def find(self, credential_id: str) -> Credential | None:
        """The credential of that id, unless it was revoked; raises as `authenticate` does."""
        row = await self._store.get(Credential, credential_id)
        return None if row is None or row.revoked_at else _unexpired(row)

    def is_remembered(self, credential: Credential) -> bool:
        """Whether it was found valid a moment ago and not revoked since; costs no read."""
        known = self._remembered.get(credential.token_hash)
        return known is not None and self._clock() < known[1] and not is_expired(credential)

    async def recheck(self, credential: Credential) -> None:
        """Raise `Unauthenticated` unless it still stands: sockets outlive the moment for which a token is looked at."""
        _unexpired(credential)
        if await self._look_up(credential.token_hash) is None:
            raise Unauthenticated("The credential was revoked.")

    async def list(self, caller: Caller, *, agent_id: str | None, limit: int, cursor: str) -> wire.TokenPage:
        """The tokens that the caller may see, in the order of their ids: an agent its own, an admin all."""
        agent_id = agent_id if caller.is_admin else caller.agent_id
        where = {} if agent_id is None else {"agent_id": agent_id}
        rows = await self._store.select(Credential, where, after=cursor, limit=limit + 1)
        return wire.TokenPage(
            tokens=[
                wire.TokenView(
                    token_id=row.id,
                    agent_id=row.agent_id,
                    scopes=[*row.scopes],
                    created_at=rfc3339(row.created_at),
                    expires_at=rfc3339(row.expires_at) if row.expires_at else None,
                    revoked_at=rfc3339(row.revoked_at) if row.revoked_at else None,
                )
                for row in rows[:limit]
            ],
            next_cursor=rows[limit - 1].id if len(rows) > limit else None,
        )

    async def revoke_for(self, caller: Caller, credential_id: str) -> Credential:
        """End a token of the caller's own agent, or for an admin any, and say whose it was. Idempotent."""
        row = await self._store.get(Credential, credential_id)
        if row is None or not caller.may_see(row.agent_id):
            raise ResourceNotFound("There is no such token.", action="GET /tokens lists those that you may revoke.")
        await self.revoke(row.id)
        return row

    async def revoke(self, credential_id: str) -> bool:
        """End a token now. False when there is none of that id, or it had ended already."""
        for _ in range(DECIDE_AGAIN_MAX):
            row = await self._store.get(Credential, credential_id)
            if row is None or row.revoked_at:
                return False
            outcome = await self._store.apply(Update(changed(row, revoked_at=now_ms())))
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


def read_secret(path: Path, kind: str) -> bytes:
    """The first bytes of a file with a secret of that kind, unless somebody else may know it or have put it there.

    Raises FileNotFoundError when there is none yet.
    """
    try:
        # What is no file would keep us waiting for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unfit(path, kind, f"cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise _unfit(path, kind, "is not a plain file")
        if about.st_uid != os.geteuid():
            raise _unfit(path, kind, "belongs to another user")
        if about.st_mode & 0o077:
            mode = f"{about.st_mode & 0o777:04o}"
            raise _unfit(path, kind, f"can be read by others (mode {mode}), so it may have leaked")
        return file.read(200)


def _read_admin_token(path: Path) -> str:
    token = read_secret(path, "token").decode("ascii", "replace").strip()
    if not TOKEN_FORM.fullmatch(token):
        raise _unfit(path, "token", "does not hold a token")
    return token


def _unfit(path: Path, kind: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The {kind} {path} {why}.",
        action=f"Remove {path} and start again; a new {kind} is made.",
        field=path.name,
    )
