"""What there is after a crash campaign, compared with what its clients were told: lost, doubled or left behind.

Each check answers with sentences, one for each thing that is not as it should be; none is what is wanted.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from tests.cdp_life.wire_client import wire_client
from tests.server.conftest import Server, is_alive

from .ledger import Ledger, Opened, Tried
from .rigs import Rig
from .site import CountingSite

# Until then what should end by itself has ended: sessions that nobody knows of live 20 s, tasks as long as theirs.
CALM_S: Final = 120.0
OVER: Final = frozenset(("done", "failed", "cancelled", "rejected"))
# How a task may end that was cut off, and no other: whoever is told anything else has been told the wrong thing.
TASK_CODES: Final = frozenset(("outcome_unknown", "deadline_exceeded", "browser_crashed", "navigation_failed"))
MARK_BYTES: Final = 64
LIVING: Final = "('reserved', 'active', 'recovering', 'pooled', 'closing')"


class Afterwards:
    """Looks at the servers of a rig when the crowd has left."""

    def __init__(self, rig: Rig, ledger: Ledger, site: CountingSite) -> None:
        self._rig = rig
        self._ledger = ledger
        self._site = site

    async def findings(self) -> dict[str, list[str]]:
        """Everything that is checked, by its name."""
        with self._rig.servers[0].client() as client:
            found = {
                "acknowledged tasks that are lost": await asyncio.to_thread(self._lost_tasks, client),
                "commands with another outcome": await asyncio.to_thread(self._other_outcomes, client),
                "sessions neither usable nor ended with a reason": await asyncio.to_thread(self._odd_sessions, client),
            }
        found |= {
            "effects that happened too often": self._doubled(),
            "effects that were acknowledged and never happened": self._missing(),
            "cross-talk": self._site.crosstalk,
            "surprises": self._ledger.surprises,
        }
        found["rows left behind"] = await self._settled(self._rows)
        found["counters that are not a recount"] = await self._settled(self._miscounted)
        found["marks left behind"] = await self._settled(self._marks)
        found["files left behind"] = await self._settled(self._files)
        found["orphan processes"] = await self._settled(self._orphans)
        found["orphan profiles"] = await self._settled(self._profiles)
        found["orphan contexts"] = await self._settled_async(self._contexts)
        found["open files left behind"] = await self._settled(self._open_files)
        return found

    # --- What clients were told -----------------------------------------------------------------------------------

    def _lost_tasks(self, client: httpx.Client) -> list[str]:
        wrong = []
        for tried in self._tried("task"):
            answer = client.get(f"/tasks/{tried.id}", params={"waitMs": 50_000})
            if answer.status_code != 200:
                wrong.append(f"{tried.id} ({tried.who}): {answer.status_code} {answer.text[:200]}")
                continue
            view = answer.json()
            count = self._site.effects[tried.who]
            if view["state"] not in OVER:
                wrong.append(f"{tried.id} ({tried.who}) is still {view['state']}")
            elif view["state"] == "done" and not count:
                wrong.append(f"{tried.id} ({tried.who}) is done and had no effect")
            elif view["state"] == "failed" and view["code"] not in TASK_CODES:
                wrong.append(f"{tried.id} ({tried.who}) failed with {view['code']}: {view['error']}")
            elif tried.told == "done" and view["state"] != "done":
                wrong.append(f"{tried.id} ({tried.who}) was told to be done, and is {view['state']} {view['code']}")
            if count > (view["attempts"] if tried.is_idempotent else 1):
                wrong.append(f"{tried.id} ({tried.who}) had {count} effects in {view['attempts']} attempts")
        return wrong

    def _other_outcomes(self, client: httpx.Client) -> list[str]:
        wrong = []
        for tried in self._tried("command"):
            answer = client.get(f"/commands/{tried.id}")
            if answer.status_code != 200:
                wrong.append(f"{tried.id} ({tried.who}): {answer.status_code} {answer.text[:200]}")
                continue
            now = answer.json()["outcome"]
            # What has no key is written behind: a crash may take its outcome, and then nobody claims to know it.
            allowed = {"outcome_unknown"} if not tried.is_keyed else set()
            if tried.told == "completed" and now not in {"completed", *allowed}:
                wrong.append(f"{tried.id} ({tried.who}) was completed, and is {now}")
            if tried.told != "completed" and now in ("completed", None):
                wrong.append(f"{tried.id} ({tried.who}) was told {tried.told}, and is {now}")
        return wrong

    def _odd_sessions(self, client: httpx.Client) -> list[str]:
        return [wrong for opened in self._ledger.sessions.values() if (wrong := _oddity(client, opened))]

    def _tried(self, kind: str) -> list[Tried]:
        return [tried for tried in self._ledger.tried.values() if tried.kind == kind and tried.id]

    def _doubled(self) -> list[str]:
        """Tasks that may be repeated are compared with their attempts, above."""
        return [
            f"{who} happened {count} times"
            for who, count in self._site.effects.items()
            if count > 1 and not self._ledger.tried[who].is_idempotent
        ]

    def _missing(self) -> list[str]:
        return [
            f"{tried.who} ({tried.kind}) was told to be {tried.told} and never happened"
            for tried in self._ledger.tried.values()
            if tried.told in ("completed", "done") and not self._site.effects[tried.who]
        ]

    # --- What is left ---------------------------------------------------------------------------------------------

    async def _settled(self, look: Callable[[], list[str]]) -> list[str]:
        """What is wrong when there was time for it to end by itself."""

        async def aside() -> list[str]:
            return await asyncio.to_thread(look)

        return await self._settled_async(aside)

    async def _settled_async(self, look: Callable[[], Awaitable[list[str]]]) -> list[str]:
        give_up_s = time.monotonic() + CALM_S
        while (wrong := await look()) and time.monotonic() < give_up_s:
            await asyncio.sleep(0.5)
        return wrong

    def _rows(self) -> list[str]:
        states = {
            "sessions": f"state IN {LIVING}",
            "tabs": "state <> 'closed'",
            "tasks": "state IN ('queued', 'assigned', 'running')",
            "named_locks": "1 = 1",
            "waiters": "1 = 1",
            "checkpoints": "1 = 1",
        }
        counts = {table: self._count(f"{table} WHERE {where}") for table, where in states.items()}
        return [f"{count} {table}" for table, count in counts.items() if count] + self._browser_rows()

    def _browser_rows(self) -> list[str]:
        rows = {row[0] for row in self._rig.rows("SELECT id FROM browsers")}
        known = {view["browserId"] for server in self._rig.servers for view in _browsers(server)}
        return [f"browser {id} has a row and no browser" for id in rows - known] + [
            f"browser {id} has no row" for id in known - rows
        ]

    def _miscounted(self) -> list[str]:
        kept = {name: value for name, value in self._rig.rows("SELECT name, value FROM counters") if _is_cap(name)}
        counted = recount(self._rig)
        return [] if kept == counted else [f"the counters are {kept} and a recount says {counted}"]

    def _count(self, what: str) -> int:
        return int(self._rig.rows(f"SELECT count(*) FROM {what}")[0][0])

    def _marks(self) -> list[str]:
        wrong = []
        for server in self._rig.servers:
            for path in server.state.glob("*.marks"):
                content = path.read_bytes()
                left = [content[at : at + MARK_BYTES] for at in range(0, len(content), MARK_BYTES) if content[at]]
                wrong += [f"{path.name}: {mark.decode('ascii', 'replace').strip()}" for mark in left]
        return wrong

    def _files(self) -> list[str]:
        return [str(path) for server in self._rig.servers for path in (server.state / "files").glob("*")]

    def _orphans(self) -> list[str]:
        known = {view["pid"] for server in self._rig.servers for view in _browsers(server)}
        found = [process for server in self._rig.servers for process in server.browsers() if is_alive(process)]
        roots = [process for process in found if "--type=" not in " ".join(_words(process))]
        return [f"{process.pid} runs and no server knows it" for process in roots if process.pid not in known]

    def _profiles(self) -> list[str]:
        known = {view["browserId"] for server in self._rig.servers for view in _browsers(server)}
        return [name for server in self._rig.servers for name in server.profiles() if name not in known]

    async def _contexts(self) -> list[str]:
        wrong = []
        endpoints = dict(self._rig.rows("SELECT id, endpoint FROM browsers WHERE state = 'ready'"))
        for view in [view for server in self._rig.servers for view in await asyncio.to_thread(_browsers, server)]:
            if view["browserId"] not in endpoints:
                continue
            async with wire_client(endpoints[view["browserId"]]) as client:
                contexts = (await client.call("Target.getBrowserContexts"))["browserContextIds"]
            if len(contexts) != view["stock"]:
                wrong.append(f"{view['browserId']} has {len(contexts)} contexts, of which {view['stock']} are warm")
        return wrong

    def _open_files(self) -> list[str]:
        wrong = []
        for server in self._rig.servers:
            pid = server.record["pid"]
            links = [_link(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
            wrong += [f"{server.state.name} keeps {link}" for link in links if link.endswith("(deleted)")]
            pidfds = sum("pidfd" in link for link in links)
            browsers = len(_browsers(server, is_here=True))
            if pidfds > browsers:
                wrong.append(f"{server.state.name} watches {pidfds} processes and has {browsers} browsers")
            half = [one for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_CLOSE_WAIT]
            wrong += [f"{server.state.name} has not closed its side of {one.laddr} {one.raddr}" for one in half]
        return wrong


def recount(rig: Rig) -> dict[str, int]:
    """What counts against caps, counted from the rows."""
    found: Counter[str] = Counter()
    pools: dict[str, str] = {}
    for id, state, pool, key, agent_id in rig.rows(
        f"SELECT id, state, pool, key, agent_id FROM sessions WHERE state IN {LIVING}"
    ):
        kind = "pooled" if state == "pooled" else "active"
        pools[id] = pool
        found[f"{kind}:{pool}"] += 1
        if key:
            found[f"{kind}:{pool}:key:{key}"] += 1
        if kind == "active":
            found[f"{kind}:{pool}:agent:{agent_id}"] += 1
    for session_id, state in rig.rows("SELECT session_id, state FROM tabs"):
        if session_id in pools and state != "closed":
            found[f"tabs:{pools[session_id]}"] += 1
    return dict(found)


def leftovers(servers: list[Server]) -> list[str]:
    """What is still there of servers that were stopped in order."""
    processes = [str(process.pid) for server in servers for process in server.browsers() if is_alive(process)]
    return [f"process {pid}" for pid in processes] + [
        f"profile {name}" for server in servers for name in server.profiles()
    ]


def _oddity(client: httpx.Client, opened: Opened) -> str:
    """Why that session is neither usable nor over; empty if it is one of the two."""
    answer = client.get(f"/sessions/{opened.id}")
    if answer.status_code != 200:
        return f"{opened.id}: {answer.status_code} {answer.text[:200]}"
    view = answer.json()
    if view["state"] in ("closed", "lost"):
        return "" if view["endReason"] else f"{opened.id} is {view['state']} without a reason"
    if view["state"] == "closing":
        return ""
    if opened.is_released:
        return f"{opened.id} was given back and is {view['state']}"
    asked = {"kind": "evaluate", "expression": "6 * 7", "waitPolicy": "wait_with_timeout"}
    used = client.post(f"/tabs/{opened.tab_id}/action", json=asked)
    ok = used.status_code == 200 and used.json()["result"] == 42
    # It may end meanwhile, as it should when its owner is gone.
    return "" if ok or used.json().get("code") == "lease_lost" else f"{opened.id} is {view['state']}: {used.text[:200]}"


def _browsers(server: Server, *, is_here: bool = False) -> list[dict[str, Any]]:
    with server.client() as client:
        views: list[dict[str, Any]] = client.get("/browsers").json()["browsers"]
    return [view for view in views if not is_here or view["node"] in ("", server.record["nodeId"])]


def _is_cap(name: str) -> bool:
    return name.partition(":")[0] in ("active", "pooled", "tabs")


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return ["--type=gone"]


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""
