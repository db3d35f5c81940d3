"""`status`: whether the server runs, and what it is doing."""

from __future__ import annotations

from collections import Counter

from .. import wire
from ..client.sync import Tabherd
from .output import Voice, printable

NOT_MEASURED = "-"
POOL_HEADINGS = ("pool", "active", "capacity", "waiting", "pooled", "tabs", "browsers", "warm", "free seats")
BROWSER_HEADINGS = (
    "browser",
    "pool",
    "state",
    "pid",
    "sessions",
    "served",
    "warm",
    "memory",
    "CPU",
    "circuit",
    "product",
)
# What a narrow terminal does without, the first one first.
SPARE = ("product", "served", "circuit", "warm", "CPU", "pool")
POOL_SPARE = ("tabs", "pooled", "warm")
NODE_HEADINGS = ("node", "state", "address", "sessions", "free seats", "heard of")
NODE_SPARE = ("heard of", "address")


def show(voice: Voice) -> None:
    """One screen about the server; raises `NodeUnreachable` when there is none."""
    with Tabherd(patience_s=0) as herd:
        health = herd.health()
        is_ready = herd.is_ready()
        stats = herd.stats()
        nodes = herd.nodes()
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
            "draining": stats.draining,
            "nodes": nodes,
            "pools": stats.pools,
            "browsers": browsers,
            "sessions": dict(by_agent),
        },
        f"tabherd {health.version} at {herd.url}, node {health.node}: {_condition(is_ready, stats.draining)}",
    )
    if voice.as_json:
        return
    counts = ", ".join(f"{agent} {count}" for agent, count in by_agent.most_common())
    # As the table of pools and `top` count them; which agents have them is known of those that this caller may see.
    active = sum(pool.active for pool in stats.pools.values())
    voice.say(f"Active sessions: {active}" + (f" ({counts})." if counts else "."))
    if len(nodes) > 1:
        voice.say("")
        voice.table(nodes, NODE_HEADINGS, [_node(node) for node in nodes], "No nodes.", NODE_SPARE)
    voice.say("")
    voice.table(stats.pools, POOL_HEADINGS, [_pool(*each) for each in stats.pools.items()], "No pools.", POOL_SPARE)
    voice.say("")
    voice.table(browsers, BROWSER_HEADINGS, [_browser(browser) for browser in browsers], "No browsers.", SPARE)
    for browser in browsers:
        # Once another one serves in its place, the failure is history.
        if browser.last_failure and browser.state != "ready":
            voice.say(f"{browser.browser_id}: the last one in its place failed: {printable(browser.last_failure)}")


def _condition(is_ready: bool, is_draining: bool) -> str:
    if is_draining:
        return "draining, admits no new session ('tabherd drain --resume' takes that back)."
    return "ready." if is_ready else "no browser is ready yet."


def _pool(name: str, pool: wire.PoolStats) -> tuple[str, ...]:
    held = (pool.active, pool.capacity, pool.waiting, pool.pooled, pool.tabs)
    return name, *map(str, (*held, pool.browsers, pool.stock, pool.free_seats))


def _node(node: wire.NodeView) -> tuple[str, ...]:
    age = node.beat_age_ms
    heard = NOT_MEASURED if age is None else f"{age / 1000:.1f} s ago"
    name = f"{node.node_id} (this)" if node.is_self else node.node_id
    return name, node.state, node.url, str(node.sessions), str(node.free_seats), heard


def _browser(browser: wire.BrowserView) -> tuple[str, ...]:
    memory, cpu = browser.memory_bytes, browser.cpu_percent
    return (
        browser.browser_id,
        browser.pool,
        f"{browser.state}, suspect" if browser.suspect else browser.state,
        str(browser.pid),
        str(browser.sessions),
        str(browser.sessions_served),
        str(browser.stock),
        NOT_MEASURED if memory is None else f"{memory / (1 << 20):.0f} MB",
        NOT_MEASURED if cpu is None else f"{cpu:.0f} %",
        browser.circuit,
        browser.product,
    )
