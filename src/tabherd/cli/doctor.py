"""`doctor`: what a server needs of this machine, checked one by one, each with the exact fix.

A check only looks; it changes nothing and never raises. `fail` means that a server would not work, `warn` that it
would, but not as well as it could.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import socket
import sqlite3
import stat
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from .. import config, config_layers
from ..client.discovery import TOKEN_FILE
from ..errors import TabherdError
from .output import Voice, is_colourful
from .process import find_server

OPEN_FILES_WANTED = 4_096
OPEN_FILES_NEEDED = 256
# Below it the launcher starts Chromium with --disable-dev-shm-usage.
SHARED_MEMORY_WANTED_BYTES = 512 << 20
DISK_WANTED_BYTES = 1 << 30


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


COLOURS = {Verdict.OK: "\x1b[32m", Verdict.WARN: "\x1b[33m", Verdict.FAIL: "\x1b[31m"}
PLAIN = "\x1b[0m"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    verdict: Verdict
    # What is the case.
    finding: str
    # The exact step that mends it; empty when all is well.
    fix: str = ""


def examine(config_path: Path | None, state: Path) -> Iterator[Finding]:
    """Every check, in the order in which a person would mend them; each is made when it is asked for."""
    try:
        settings = config_layers.load(config_path)
    except TabherdError as error:
        yield Finding(check="configuration", verdict=Verdict.FAIL, finding=error.message, fix=error.action)
        # The rest is still worth knowing, under the settings a server would have without the broken ones.
        settings = config.Config()
    else:
        yield Finding(check="configuration", verdict=Verdict.OK, finding="It can be read and holds no contradiction.")
    yield from _machine(settings, state)


def show(voice: Voice, checks: Iterator[Finding]) -> bool:
    """Print each as it comes; whether nothing fails."""
    findings: list[Finding] = []
    with voice.progress("Checking this machine"):
        for finding in checks:
            findings.append(finding)
            _say(voice, finding)
    healthy = all(finding.verdict is not Verdict.FAIL for finding in findings)
    if voice.as_json:
        voice.dump({"healthy": healthy, "findings": findings})
    return healthy


def _say(voice: Voice, finding: Finding) -> None:
    colour = COLOURS[finding.verdict] if is_colourful(sys.stdout) else ""
    word = f"{colour}{finding.verdict:<4}{PLAIN}" if colour else f"{finding.verdict:<4}"
    voice.say(f"{word}  {finding.check:<13}  {finding.finding}")
    if finding.fix:
        voice.say(f"{'':21}fix: {finding.fix}")


def _machine(settings: config.Config, state: Path) -> Iterator[Finding]:
    yield check_python()
    for name, pool in settings.pools.items():
        yield check_browser(name, pool)
    yield check_state_dir(state)
    yield check_token(state)
    yield check_store(settings, state)
    yield check_port(settings, state)
    yield check_shared_memory()
    yield check_sandbox()
    yield check_open_files()


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    text = ".".join(map(str, version))
    if version >= (3, 11):
        return Finding(check="python", verdict=Verdict.OK, finding=f"Python {text}.")
    return Finding(
        check="python",
        verdict=Verdict.FAIL,
        finding=f"Python {text} is older than 3.11.",
        fix="Install Python 3.11 or newer and create the environment with it.",
    )


def check_browser(pool_name: str, pool: config.Pool) -> Finding:
    from ..browsers.find import find_browser

    name = "browser" if pool_name == "default" else f"browser/{pool_name}"
    try:
        found = find_browser(pool.browser, pool.headless)
    except TabherdError as error:
        return Finding(check=name, verdict=Verdict.FAIL, finding=error.message, fix=error.action)
    return Finding(check=name, verdict=Verdict.OK, finding=f"{found.version} ({found.kind}) at {found.path}.")


def check_state_dir(state: Path) -> Finding:
    if not state.exists():
        parent = next(each for each in state.parents if each.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            return Finding(
                check="state dir", verdict=Verdict.OK, finding=f"{state} will be created at the first start."
            )
        return Finding(
            check="state dir",
            verdict=Verdict.FAIL,
            finding=f"{state} cannot be created: {parent} is not writable.",
            fix="Set TABHERD_STATE to a directory of your own.",
        )
    found = state.stat()
    if not state.is_dir() or not os.access(state, os.R_OK | os.W_OK | os.X_OK):
        return Finding(
            check="state dir",
            verdict=Verdict.FAIL,
            finding=f"{state} is not a directory you can write to.",
            fix=f"chown {os.getuid()} {state} && chmod 700 {state}, or set TABHERD_STATE to another directory.",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Finding(
            check="state dir",
            verdict=Verdict.FAIL,
            finding=f"Others may write to {state} and so replace the store and the token.",
            fix=f"chmod 700 {state}",
        )
    free = shutil.disk_usage(state).free
    if free < DISK_WANTED_BYTES:
        return Finding(
            check="state dir",
            verdict=Verdict.WARN,
            finding=f"{state} has {free >> 20} MB left; the store and browser profiles need room.",
            fix="Free some space, or set TABHERD_STATE to a larger disk.",
        )
    return Finding(check="state dir", verdict=Verdict.OK, finding=f"{state}, yours alone to write.")


def check_token(state: Path) -> Finding:
    path = state / TOKEN_FILE
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return Finding(check="admin token", verdict=Verdict.OK, finding="It will be created at the first start.")
    except OSError as error:
        return Finding(
            check="admin token",
            verdict=Verdict.FAIL,
            finding=f"{path} cannot be read: {error.strerror}.",
            fix=f"chown {os.getuid()} {path} && chmod 600 {path}",
        )
    if mode & 0o077:
        return Finding(
            check="admin token",
            verdict=Verdict.FAIL,
            finding=f"{path} has mode {mode:04o}: others on this machine may read it.",
            fix=f"chmod 600 {path}",
        )
    return Finding(check="admin token", verdict=Verdict.OK, finding=f"{path}, readable by you alone.")


def check_store(settings: config.Config, state: Path) -> Finding:
    address = urlsplit(settings.store)
    if address.scheme == "memory":
        return Finding(
            check="store",
            verdict=Verdict.WARN,
            finding="memory:// keeps nothing over a restart.",
            fix="Leave 'store' out of the configuration to use SQLite in the state directory.",
        )
    path = Path(unquote(address.path)) if settings.store else state / "tabherd.db"
    if not path.exists():
        return Finding(check="store", verdict=Verdict.OK, finding=f"SQLite at {path} will be created.")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=2)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return Finding(
            check="store",
            verdict=Verdict.FAIL,
            finding=f"SQLite at {path} cannot be read: {error}.",
            fix=f"Restore {path} from a backup, or move it away to start empty.",
        )
    if not os.access(path, os.W_OK):
        return Finding(
            check="store",
            verdict=Verdict.FAIL,
            finding=f"SQLite at {path} is not writable.",
            fix=f"chown {os.getuid()} {path} && chmod 600 {path}",
        )
    return Finding(check="store", verdict=Verdict.OK, finding=f"SQLite {sqlite3.sqlite_version} at {path}.")


def check_port(settings: config.Config, state: Path) -> Finding:
    host, port = settings.server.host, settings.server.port
    server = find_server(state)
    if server is not None:
        with server:
            where = f"listens at {server.record.url}" if server.record else "is starting or stopping"
            return Finding(check="port", verdict=Verdict.OK, finding=f"Your server (pid {server.pid}) {where}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        return Finding(
            check="port",
            verdict=Verdict.FAIL,
            finding=f"{host}:{port} " + ("is taken by another program." if taken else f"cannot be used: {error}."),
            fix="Choose another with 'tabherd up --port N' or [server] port." if taken else "Correct [server] host.",
        )
    return Finding(check="port", verdict=Verdict.OK, finding=f"{host}:{port} is free.")


def check_shared_memory(path: Path = Path("/dev/shm"), wanted_bytes: int = SHARED_MEMORY_WANTED_BYTES) -> Finding:
    try:
        size = shutil.disk_usage(path).total
    except OSError:
        size = 0
    if size >= wanted_bytes:
        return Finding(check="shared memory", verdict=Verdict.OK, finding=f"{path} has {size >> 20} MB.")
    return Finding(
        check="shared memory",
        verdict=Verdict.WARN,
        finding=f"{path} has {size >> 20} MB; Chromium is made to use slower files in its place.",
        fix=f"mount -o remount,size=1g {path}; in a container, start it with --shm-size=1g.",
    )


def check_sandbox(user_id: int | None = None, proc: Path = Path("/proc/sys")) -> Finding:
    """Chromium isolates pages with user namespaces; root cannot have its sandbox at all."""
    if (os.geteuid() if user_id is None else user_id) == 0:
        return Finding(
            check="sandbox",
            verdict=Verdict.WARN,
            finding="As root, Chromium runs without its sandbox: a page that breaks out of it owns this machine.",
            fix="Run tabherd as an ordinary user, or keep it in a container that holds nothing else.",
        )
    switches = {
        "kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        "user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=10000"),
        "kernel/apparmor_restrict_unprivileged_userns": (
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    }
    for name, (forbids, fix) in switches.items():
        try:
            value = (proc / name).read_text(encoding="ascii").strip()
        except OSError:
            # Not every kernel has every switch; one that is absent forbids nothing.
            continue
        if value == forbids:
            return Finding(
                check="sandbox",
                verdict=Verdict.WARN,
                finding=f"{name.replace('/', '.')} is {value}: Chromium may be unable to make its sandbox.",
                fix=f"sudo {fix}",
            )
    return Finding(check="sandbox", verdict=Verdict.OK, finding="User namespaces are allowed.")


def check_open_files(limits: tuple[int, int] | None = None) -> Finding:
    soft, hard = limits or resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_WANTED:
        return Finding(check="open files", verdict=Verdict.OK, finding=f"{soft} allowed.")
    return Finding(
        check="open files",
        verdict=Verdict.FAIL if soft < OPEN_FILES_NEEDED else Verdict.WARN,
        finding=f"Only {soft} open files are allowed; a crowd of agents needs more.",
        fix=f"ulimit -n {OPEN_FILES_WANTED}"
        + (
            "" if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_WANTED else ", as root: the hard limit is lower."
        ),
    )
