"""The state directory of one server: who owns it, which node it is, and where the running server can be found.

Invariants:
- At most one server owns the directory: the kernel's lock on `lock` is held as long as the process lives, and is gone
  with it, however it dies.
- Nobody but its user, and root, could have put anything there: not into the directory, and no file or directory in it.
- `node.json` keeps the node's id for ever and its epoch, which grows at each start, also when the store is lost.
- `server.json` exists only while a server is ready; it is replaced whole, never seen half-written.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from ..broker.ids import CHANCE_CHARS, encode
from ..errors import InvalidRequest, StateDirInUse

LOCK_FILE: Final = "lock"
NODE_FILE: Final = "node.json"
SERVER_FILE: Final = "server.json"
# One directory for each browser that was launched.
PROFILES_DIR: Final = "profiles"
# One directory for each session that has files.
FILES_DIR: Final = "files"


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a running server is; also what `server.json` says."""

    url: str
    pid: int
    node_id: str


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which node this is, and which of its lives."""

    node_id: str
    epoch: int


class StateDir:
    """An owned state directory; made by `owned`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def next_identity(self, epoch_floor: int = 0) -> Identity:
        """The node's id, made at its first start, with an epoch above the last one and above the floor."""
        path = self.path / NODE_FILE
        try:
            last = msgspec.json.decode(path.read_bytes(), type=Identity)
        except FileNotFoundError:
            last = Identity(node_id="nod_" + encode(secrets.randbits(5 * CHANCE_CHARS), CHANCE_CHARS), epoch=0)
        except (OSError, msgspec.DecodeError) as error:
            raise InvalidRequest(
                f"{path} cannot be read: {error}.",
                action=f"Restore {path}, or remove it: the node then starts anew, without its earlier sessions.",
                field=NODE_FILE,
            ) from None
        identity = msgspec.structs.replace(last, epoch=max(last.epoch, epoch_floor) + 1)
        self._replace(NODE_FILE, msgspec.json.encode(identity))
        return identity

    def announce(self, info: ServerInfo) -> None:
        """Say where the server is."""
        self._replace(SERVER_FILE, msgspec.json.encode(info))

    def withdraw(self) -> None:
        """Say that no server is ready here. Idempotent."""
        (self.path / SERVER_FILE).unlink(missing_ok=True)

    def _replace(self, name: str, content: bytes) -> None:
        draft = self.path / f".{name}.{secrets.token_hex(8)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path / name)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


@contextmanager
def owned(path: Path) -> Iterator[StateDir]:
    """Own the directory, made private if it is new; `StateDirInUse` names the server that has it already."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_reachable(path)
        descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise InvalidRequest(
            f"The state directory {path} cannot be used: {error.strerror}.",
            action="Make it writable, or set TABHERD_STATE to another directory.",
            field="TABHERD_STATE",
        ) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidRequest(f"{path / LOCK_FILE} is not a plain file.", field=LOCK_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(path, descriptor) from None
        # Who owns it, for the refusal of a second server that comes before the first is ready.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        directory = StateDir(path)
        # One that was killed could not withdraw.
        directory.withdraw()
        try:
            yield directory
        finally:
            directory.withdraw()
    finally:
        os.close(descriptor)


def _refuse_reachable(path: Path) -> None:
    """Raise unless all there is ours or root's, and only we may add to it.

    Whoever else may would be an admin: by a key or a store of theirs. Nothing is repaired, because what is there may be
    theirs already.
    """
    about = path.stat()
    if about.st_uid not in (os.geteuid(), 0):
        raise InvalidRequest(
            f"The state directory {path} belongs to another user (uid {about.st_uid}).",
            action=f"Set TABHERD_STATE to a directory of your own, or run: chown -R {os.geteuid()} {path}",
            field="TABHERD_STATE",
        )
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidRequest(
            f"Others may write to the state directory {path} (mode {stat.S_IMODE(about.st_mode):04o}).",
            action=f"Run: chmod go-w {path}",
            field="TABHERD_STATE",
        )
    for name in os.listdir(path):
        # A server that runs there may remove what it needs no more.
        with suppress(FileNotFoundError):
            if (path / name).lstat().st_uid not in (os.geteuid(), 0):
                raise InvalidRequest(
                    f"{path / name} belongs to another user.",
                    action="Remove it if you do not know where it comes from; else make it your own with chown.",
                    field="TABHERD_STATE",
                )


def _in_use(path: Path, lock: int) -> StateDirInUse:
    pid = os.pread(lock, 20, 0).decode("ascii", "replace") or "unknown"
    try:
        url = msgspec.json.decode((path / SERVER_FILE).read_bytes(), type=ServerInfo).url
    except (OSError, msgspec.DecodeError):
        url = ""
    where = f"at {url}" if url else "and is starting or stopping"
    return StateDirInUse(
        f"Another tabherd (pid {pid}) owns the state directory {path} {where}.",
        pid=int(pid) if pid.isdigit() else None,
        url=url or None,
        path=str(path),
    )
