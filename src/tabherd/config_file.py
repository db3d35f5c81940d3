"""The configuration file on disk: what it holds, whether it changed, and how it is changed.

What it keeps:
- It is replaced whole or not at all, with the owner's permissions, and never seen half-written.
- Writers take turns: the lock of a file beside it is held from reading to replacing, by every server that uses it.
- What an editor, which knows no lock, wrote meanwhile is not lost: the file is compared again before it is replaced.

Everything here blocks, and is meant for a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from .errors import InvalidRequest, StateConflict

# How long a writer waits for another one, which holds the lock for milliseconds.
LOCK_LIMIT_S: Final = 2.0
LOCK_PAUSE_S: Final = 0.01
# Enough for any settings; a larger file is none of ours.
FILE_MAX_BYTES: Final = 1 << 22

# Inode, size and time of the last change; None when there is no file.
Stamp: TypeAlias = tuple[int, int, int] | None


def stamp_of(path: Path) -> Stamp:
    """What changes whenever the file does."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns


def rewrite(path: Path, change: Callable[[bytes | None], bytes], *, lock_limit_s: float = LOCK_LIMIT_S) -> bytes:
    """Replace what the file holds by what `change` makes of it, and return that. If it raises, the file stays.

    A file that somebody changed meanwhile is a `StateConflict`.
    """
    # A link stays a link: what it points to is replaced.
    path = path.resolve()
    try:
        with _locked(path.with_name(f".{path.name}.lock"), lock_limit_s):
            old = _content(path)
            new = change(old)
            if new != old:
                _replace(path, old, new)
            return new
    except OSError as error:
        raise InvalidRequest(
            f"The configuration file {path} cannot be written: {error.strerror}.",
            action="Make the file and its directory writable for the server, or change the file by hand.",
            field="config",
        ) from None


@contextlib.contextmanager
def _locked(path: Path, limit_s: float) -> Iterator[None]:
    # Beside the file: a lock on the file itself would be a lock on what has been replaced.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        until = time.monotonic() + limit_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StateConflict(
                        "Somebody else is changing the configuration file.",
                        action="Try again.",
                        retryable=True,
                        retry_after_ms=1_000,
                    ) from None
                time.sleep(LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > FILE_MAX_BYTES:
        raise InvalidRequest(f"The configuration file {path} has more than {FILE_MAX_BYTES} bytes.", field="config")
    return content


def _replace(path: Path, old: bytes | None, new: bytes) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(new)
            if old is not None:
                _permit_alike(path, file.fileno())
            file.flush()
            os.fsync(file.fileno())
        if _content(path) != old:
            raise StateConflict(
                f"The configuration file {path} was changed by somebody else at the same moment.",
                action="Look at it again, and repeat the change if it is still wanted.",
                retryable=True,
                retry_after_ms=1_000,
            )
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _permit_alike(path: Path, descriptor: int) -> None:
    """Give the new file the owner and the permissions of the old one."""
    about = path.stat()
    if (about.st_uid, about.st_gid) != (os.geteuid(), os.getegid()):
        # Only root may give files away; for others the file becomes theirs, as with any editor.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, about.st_uid, about.st_gid)
    os.fchmod(descriptor, about.st_mode & 0o7777)
