"""Which user a client on this machine runs as, as the kernel knows it. A client that is elsewhere has none."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path
from typing import Final

from ..auth import Address

# The kernel's lists of TCP connections, by address family.
_LISTS: Final = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
_ESTABLISHED: Final = "01"


def user_of(client: Address | None, port: int) -> int | None:
    """The user id of the process at the other end of a connection to that port of ours; None when it is not here.

    Reads the whole list, which may be long: not for the event loop.
    """
    if client is None or client[1] is None:
        return None
    for family, path in _LISTS.items():
        try:
            here = _spelt(family, client[0], client[1])
            lines = path.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            # sl local remote state queues timer retransmits uid ...
            fields = line.split()
            if fields[1] == here and fields[3] == _ESTABLISHED and int(fields[2].rpartition(":")[2], 16) == port:
                return int(fields[7])
    return None


def _spelt(family: socket.AddressFamily, host: str, port: int) -> str:
    """An address as those lists have it: words in the byte order of the machine, the port in that of the network."""
    packed = socket.inet_pton(family, host)
    words = struct.unpack(f"{'<' if sys.byteorder == 'little' else '>'}{len(packed) // 4}I", packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
