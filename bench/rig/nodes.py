"""Several real servers on one PostgreSQL: the nodes of a cluster, each with a state directory and a port of its own.

All run on this machine and share its processors, so what is measured of three nodes is what their agreement costs, not
what three machines can do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import msgspec

from .caller import Refused
from .server import Server, running

# How long nodes may take to hear of each other: several beats.
MEET_LIMIT_S: Final = 30.0
POLL_S: Final = 0.05
NOT_FOUND: Final = 404


@contextmanager
def running_nodes(count: int, store: str, **settings: Any) -> Iterator[list[Server]]:
    """So many, all ready and known to each other. Settings as in `running`."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(running(store=store, **settings)) for _ in range(count)]
        _await_meeting(nodes)
        yield nodes


def node_id(server: Server) -> str:
    """Which node it is."""
    record = msgspec.json.decode((server.state / "server.json").read_bytes(), type=dict[str, Any])
    name: str = record["nodeId"]
    return name


def _await_meeting(nodes: Sequence[Server]) -> None:
    """Until each of them lists them all."""
    for node in nodes:
        until_s = time.perf_counter() + MEET_LIMIT_S
        with node.caller() as caller:
            while True:
                try:
                    listed = caller.call("GET", "/nodes")["nodes"]
                except Refused as refused:
                    if refused.status == NOT_FOUND:
                        raise RuntimeError("This build has no GET /nodes: a cluster cannot be measured.") from None
                    raise
                up = sum(each["state"] == "up" for each in listed)
                if up == len(nodes):
                    break
                if time.perf_counter() > until_s:
                    raise RuntimeError(f"{node.url} knows {up} of {len(nodes)} nodes after {MEET_LIMIT_S} s: {listed}")
                time.sleep(POLL_S)
