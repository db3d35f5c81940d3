"""events.md, from the table of event types."""

from __future__ import annotations

from collections.abc import Iterator

from tabherd.broker.events import EVENT_TYPES

from .markdown import row, table


def write() -> Iterator[str]:
    yield from (
        "# Events",
        "",
        "`GET /events` streams these as server-sent events. Each carries `id`, `type` and `at`, and where they apply",
        "`agentId`, `sessionId`, `tabId`, `browserId` and `reason`. A client that reconnects with `Last-Event-ID`",
        "misses nothing that is still in the ring (`[server] events_ring`); otherwise it is told so by `reset`.",
        "",
    )
    yield from table("type", "meaning")
    for kind, meaning in EVENT_TYPES.items():
        yield row(f"`{kind}`", meaning)
