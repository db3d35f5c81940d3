"""The proxy process, `python -m tabherd.egress`: serves each pool on the socket it was given while its parent lives.

Its orders are the first line of standard input. The end of standard input is its parent's end, however that came about,
and ends this process at once: nobody can have asked for anything that is worth finishing.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys

import msgspec
import uvloop

from .. import logs
from .dial import Lookups
from .policy import Judge
from .proxy import Orders, Proxy


def main() -> None:
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    logs.configure(orders.log_format, orders.log_level)
    # Two for each connection; many systems give fewer by default than they allow.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(_serve(orders))


async def _serve(orders: Orders) -> None:
    lookups = Lookups()
    servers = []
    for name, (descriptor, policy) in orders.pools.items():
        proxy = Proxy(Judge(policy), lookups, pool=name)
        servers.append(await proxy.serve(socket.socket(fileno=descriptor)))
    # At once, and not by way of the interpreter, which would wait for lookups that still run.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), os._exit, 0)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    main()
