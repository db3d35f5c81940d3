"""Where a browser's debug port may listen: only on ports that Chromium itself refuses to let pages talk to.

Whoever reaches a browser's debug port owns every tenant in it, and a page in that browser is on the right machine to
try. Chromium refuses navigation, fetch and WebSocket to the ports on its restricted list with ERR_UNSAFE_PORT, under
every alias of the loopback address, so a debug port on that list is out of reach of all pages of all browsers here.

There are few of them, and other programs may use one. A port is therefore reserved within this process, tried, and
believed only once the kernel says that the listening socket belongs to the browser we started: another broker on the
machine may have been faster, and Chromium then keeps running without a debug port, or moves to the IPv6 loopback.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import Final

from .port import LaunchFailed

# The unprivileged part of Chromium's list; a test proves each against the installed build. The Fetch standard lists
# 4190 and 6679 too, but Chromium lets pages connect to those.
RESTRICTED_PORTS: Final = (
    *(1719, 1720, 1723, 2049, 3659, 4045, 5060, 5061, 6000, 6566),
    *(6665, 6666, 6667, 6668, 6669, 6697, 10080),
)
LOOPBACK: Final = "127.0.0.1"
LOOPBACK_6: Final = "::1"
# The state LISTEN in /proc/net/tcp.
_LISTEN: Final = "0A"

# Given out by this process and not yet returned.
_reserved: set[int] = set()


class Holder(Enum):
    """Whose listening socket is on a port."""

    NOBODY = "nobody"
    OURS = "ours"
    STRANGER = "stranger"


def reserve(tried: Collection[int] = ()) -> int:
    """A port that is free right now and not among those already tried; give it back with `release`."""
    candidates = [port for port in RESTRICTED_PORTS if port not in _reserved and port not in tried]
    # In random order, so that two brokers that start together rarely try the same one.
    random.shuffle(candidates)
    for port in candidates:
        if _is_free(port):
            _reserved.add(port)
            return port
    raise LaunchFailed(
        f"None of the {len(RESTRICTED_PORTS)} ports that are safe for a browser's debug port is free "
        f"(tabherd itself holds {len(_reserved)} of them). tabherd does not use other ports, because pages could "
        "reach them: run fewer browsers on this machine, or free one of these ports: "
        + ", ".join(str(port) for port in RESTRICTED_PORTS)
        + "."
    )


def claim(port: int) -> None:
    """Reserve the port of a browser that already listens on it; give it back with `release`."""
    _reserved.add(port)


def release(port: int) -> None:
    """Let others have it. Idempotent."""
    _reserved.discard(port)


def holder(port: int, pid: int) -> Holder:
    """Whether the process listens on that port of the IPv4 loopback, or somebody else does, by the kernel's books."""
    # To read those takes it ten milliseconds, in which nobody here is served, and who waits for a browser asks often.
    if _is_free(port) and _is_free(port, socket.AF_INET6, LOOPBACK_6):
        return Holder.NOBODY
    ipv4 = _listening_inodes(Path("/proc/net/tcp"), port)
    ipv6 = _listening_inodes(Path("/proc/net/tcp6"), port)
    if not ipv4 and not ipv6:
        return Holder.NOBODY
    return Holder.OURS if ipv4 & _socket_inodes(pid) else Holder.STRANGER


def _is_free(port: int, family: socket.AddressFamily = socket.AF_INET, address: str = LOOPBACK) -> bool:
    """Whether nobody listens there. Who asks does not keep Chromium from it, because both let others bind as well."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As Chromium does: connections of a browser that just ended must not keep its port from the next.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EPERM):
            return False
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        # A kernel without IPv6.
    return True


def _listening_inodes(table: Path, port: int) -> set[str]:
    try:
        rows = table.read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:
        # A kernel without IPv6.
        return set()
    suffix = f":{port:04X}"
    inodes = set()
    for row in rows:
        fields = row.split()
        if fields[3] == _LISTEN and fields[1].endswith(suffix):
            inodes.add(fields[9])
    return inodes


def _socket_inodes(pid: int) -> set[str]:
    inodes: set[str] = set()
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError):
        return inodes
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except (FileNotFoundError, ProcessLookupError):
            # Closed since it was listed.
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes
