"""`status`: whether the server runs, and what it is doing."""

from __future__ import annotations

from collections import Counter

from ..client import Tabherd
from .output import Voice


def show(voice: Voice) -> None:
    """One screen about the server; raises `NodeUnreachable` when there is none."""
    with Tabherd() as herd:
        health = herd.health()
        is_ready = herd.is_ready()
        browsers = herd.browsers()
        # Those that have ended stay on record; they are history, not status.
        sessions = herd.sessions(state="active")
    by_agent = Counter(session.agent_id for session in sessions)
    voice.answer(
        {
            "url": herd.url,
            "version": health.version,
            "node": health.node,
            "ready": is_ready,
            "browsers": browsers,
            "sessions": dict(by_agent),
        },
        f"tabherd {health.version} at {herd.url}, node {health.node}: "
        + ("ready." if is_ready else "not taking new work (starting or draining)."),
    )
    if voice.as_json:
        return
    counts = ", ".join(f"{agent} {count}" for agent, count in by_agent.most_common())
    voice.say(f"Active sessions: {len(sessions)}" + (f" ({counts})." if counts else "."))
    voice.table(
        browsers,
        ("browser", "pool", "state", "pid", "sessions", "served", "product"),
        [
            (
                browser.browser_id,
                browser.pool,
                browser.state,
                str(browser.pid),
                str(browser.sessions),
                str(browser.sessions_served),
                browser.product,
            )
            for browser in browsers
        ],
        empty="No browsers.",
    )
