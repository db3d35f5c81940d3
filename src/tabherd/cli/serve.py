"""`up` and `down`: starting the server, in front or behind, and stopping it.

A detached start is not done until the server says that it is ready, over a pipe that it inherits: the parent waits on
that pipe, never on a clock, and a start that fails brings its typed error back the same way. Starting what runs and
stopping what does not are both fine.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from .. import config, config_layers
from ..client.discovery import ServerRecord, read_admin_token
from ..client.sync import Tabherd
from ..errors import InvalidRequest, NodeUnreachable, StateConflict, TabherdError, Unauthenticated, from_wire
from .dashboard import address
from .process import find_server

if TYPE_CHECKING:
    from ..edge.state import ServerInfo

LOG_FILE = "server.log"
# Whom the address that is printed for programs speaks for, and where its token is kept.
AGENT = "me"
AGENT_TOKEN_FILE = "me.token"
# Longest that a detached start may take: a cold machine reads a Chromium of 200 MB from disk first.
START_LIMIT_S = 120.0
# What the server may need to end its browsers once it has drained, and after a second SIGTERM.
CLOSE_LIMIT_S = 15.0
LOG_LINES_SHOWN = 8


class Flags(TypedDict, total=False):
    """What `up` was told on the command line; absent means: as configured."""

    host: str | None
    port: int | None
    store: str | None
    pool_size: int | None
    no_auth: bool


def layers_of(path: Path | None, flags: Flags) -> config_layers.Layers:
    """File, environment, then the flags of `up`."""
    named: dict[str, Any] = {
        "server.host": flags.get("host"),
        "server.port": flags.get("port"),
        "store": flags.get("store"),
        # Exactly so many: neither fewer while nobody comes nor more when many do.
        "pools.default.browsers_min": flags.get("pool_size"),
        "pools.default.browsers_max": flags.get("pool_size"),
        "auth.enabled": False if flags.get("no_auth") else None,
    }
    return config_layers.layers_of(path, flags={name: value for name, value in named.items() if value is not None})


def require_browsers(settings: config.Config) -> None:
    """Raise `NoBrowser`, with the way to get one, if a pool could never start: better now than at the first request."""
    from ..browsers.find import find_browser

    for pool in settings.pools.values():
        find_browser(pool.browser, pool.headless)


def run(
    settings: config.Config,
    layers: config_layers.Layers,
    state: Path,
    ready: Callable[[ServerRecord], None],
    ready_fd: int | None,
) -> int:
    """Serve until told to stop. With `ready_fd`, whoever started us hears there how the start went."""
    from ..edge.server import serve

    def announce(info: ServerInfo) -> None:
        record = ServerRecord(url=info.url, pid=info.pid, node_id=info.node_id)
        if ready_fd is None:
            # Beside the server, which this asks for a token.
            threading.Thread(target=ready, args=(record,), daemon=True).start()
        else:
            _tell(ready_fd, {"record": record})

    try:
        return serve(settings, state, layers=layers, ready=announce)
    except TabherdError as error:
        if ready_fd is not None:
            _tell(ready_fd, {"error": error.to_wire()})
        raise


def start_detached(arguments: list[str], state: Path) -> ServerRecord:
    """The running server of this state directory, started if there is none, once it is ready."""
    server = find_server(state)
    if server is not None:
        with server:
            if server.record is not None:
                return server.record
    # One that is just starting or stopping owns the directory too; the child is then refused with a sentence about it.
    log = _fresh_log(state)
    reading, writing = os.pipe()
    try:
        with log.open("ab") as sink:
            child = subprocess.Popen(
                [sys.executable, "-m", "tabherd", "up", *arguments, "--ready-fd", str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=(writing,),
                # Its own session: closing this terminal, or Ctrl-C in it, must not reach the server.
                start_new_session=True,
            )
        os.close(writing)
        writing = -1
        return _hear(reading, child, log)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def stop(state: Path, drain_s: int) -> int | None:
    """End the server of this state directory and wait until it is gone; its pid, or None when none was running."""
    server = find_server(state)
    if server is None:
        return None
    with server:
        pid = server.pid
        server.terminate()
        if server.wait(drain_s + CLOSE_LIMIT_S):
            return pid
        # It has had its time to drain; the second signal ends it at once.
        server.terminate()
        if server.wait(CLOSE_LIMIT_S):
            return pid
    raise StateConflict(
        f"The server (pid {pid}) did not stop within {drain_s + 2 * CLOSE_LIMIT_S:.0f} s.",
        action=f"Look at {state / LOG_FILE}, then end it with 'kill -9 {pid}'; the next start cleans up after it.",
        pid=pid,
    )


def end_leftovers(state: Path) -> int:
    """End the browsers of a server that was killed; how many there were."""
    from ..edge.leftovers import end_leftovers as end

    return end(state)


def agent_token(record: ServerRecord, state: Path) -> str | None:
    """The token of the agent `me`, to be pasted into programs; None where the server asks for none.

    Made at the first start and kept for the next ones, for its owner alone. One that is no longer good is replaced.
    """
    admin = read_admin_token(state)
    if admin is None:
        return None
    path = state / AGENT_TOKEN_FILE
    try:
        token = path.read_text(encoding="ascii").strip()
        with Tabherd(record.url, token, patience_s=0) as herd:
            herd.stats()
    except (OSError, UnicodeDecodeError, InvalidRequest, Unauthenticated):
        with Tabherd(record.url, admin, patience_s=0) as herd:
            token = herd.new_token(AGENT).token
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
    return token


def welcome(record: ServerRecord, state: Path) -> str:
    """The address to look at, the one to paste, and three lines that work."""
    try:
        token = agent_token(record, state)
    except TabherdError:
        # The server runs all the same; 'tabherd token new' makes one.
        token = "TOKEN"
    query = f"?token={token}" if token else f"?agent={AGENT}"
    command = _own_command()
    return "\n".join(
        (
            f"tabherd runs at {record.url} (pid {record.pid}); stop it with 'make down' or '{command} down'.",
            f"  dashboard  {address(record.url, read_admin_token(state))}",
            f"  CDP        {record.url}{query}   (for Playwright's connect_over_cdp, as agent {AGENT})",
            f"  state      {state}",
            "Try it:",
            f"  TAB=$({command} session new --agent {AGENT} --quiet)",
            f"  {command} act $TAB navigate url='data:text/html,<h1>Hello, herd</h1>'",
            f"  {command} act $TAB text",
        )
    )


def _own_command() -> str:
    """How this very command was called, so that the example can be pasted where it was printed."""
    return sys.argv[0] if Path(sys.argv[0]).name == "tabherd" else f"{sys.executable} -m tabherd"


def _tell(fd: int, message: Mapping[str, Any]) -> None:
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(msgspec.json.encode(message))


def _hear(fd: int, child: subprocess.Popen[bytes], log: Path) -> ServerRecord:
    """The child's one message. The end of the pipe without one means that it died."""
    message = b""
    while True:
        readable, _, _ = select.select([fd], [], [], START_LIMIT_S)
        if not readable:
            child.terminate()
            raise NodeUnreachable(f"The server did not become ready within {START_LIMIT_S:.0f} s.{_tail(log)}")
        chunk = os.read(fd, 65_536)
        if not chunk:
            break
        message += chunk
    if not message:
        code = child.wait(CLOSE_LIMIT_S)
        raise NodeUnreachable(
            f"The server ended while starting (exit code {code}).{_tail(log)}",
            action=f"Read {log}, and run 'tabherd doctor'.",
        )
    said = msgspec.json.decode(message, type=dict[str, Any])
    if "error" in said:
        child.wait(CLOSE_LIMIT_S)
        raise from_wire(said["error"])
    return msgspec.convert(said["record"], ServerRecord)


def _fresh_log(state: Path) -> Path:
    """An empty log; that of the life before is kept once, so that logs do not grow for ever."""
    log = state / LOG_FILE
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        log.touch(mode=0o600)
    except OSError as error:
        raise InvalidRequest(
            f"The state directory {state} cannot be used: {error.strerror}.",
            action="Make it writable, or set TABHERD_STATE to another directory.",
            field="TABHERD_STATE",
        ) from None
    return log


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return "".join(f"\n  {line}" for line in lines)
