"""A crowd of agents that want more sessions than there are, and do mixed work in each: commands, tasks, snapshots.

All work on one site, so that nothing but the isolation of sessions keeps them apart. Each agent leaves its name in its
page, cookie and storage, and what it finds there later must be its own: anything else is *cross-talk*. Clicks are
counted by the page: one that was acknowledged and is not there is *lost*, one that is there too often *repeated*.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, Final

import msgspec

from .caller import Line, Refused, now_ms
from .server import Server

# Longer than anybody has to wait here.
WAIT_MS: Final = 120_000
# For the last ones to end what they have begun.
END_LIMIT_S: Final = 240.0
COMMAND_CLICKS: Final = 2
TASK_CLICKS: Final = 3
CLICKS: Final = COMMAND_CLICKS + TASK_CLICKS
BUTTON: Final = "#go"
# Whose is this, and is it fresh: what the page says, what the cookie says, what others left in the storage.
ARRIVAL: Final = (
    "[document.querySelector('h1').textContent, document.cookie, localStorage.owner ?? '', window.clicks ?? 0]"
)
STAY: Final = "[document.querySelector('#name').value, document.cookie, localStorage.owner, window.clicks]"


class Found(msgspec.Struct, kw_only=True):
    """What the crowd saw."""

    # Sessions that each agent worked in from beginning to end, by its name.
    worked: Counter[str] = msgspec.field(default_factory=Counter)
    # From asking for a session to the answer; from there to the end of the work.
    opens_ms: list[float] = []
    works_ms: list[float] = []
    # Commands and tasks that were acknowledged.
    commands: int = 0
    tasks: int = 0
    cross_talk: list[str] = []
    lost: list[str] = []
    repeated: list[str] = []
    # Refusals and failures, which nobody here should meet.
    errors: list[str] = []

    @property
    def jain(self) -> float:
        """Jain's index of the agents' shares: 1 when all got as much, 1/n when one got it all."""
        shares = list(self.worked.values())
        return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


async def work(server: Server, site: str, *, agents: int, seconds: float) -> Found:
    """Let so many agents work for so long, each again and again; every session is given back."""
    names = [f"agent-{number:03}" for number in range(agents)]
    found = Found(worked=Counter(dict.fromkeys(names, 0)))
    ends_s = time.monotonic() + seconds
    async with asyncio.timeout(seconds + END_LIMIT_S), asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_come_and_go(server, name, f"{site}{name}", ends_s, found))
    return found


async def _come_and_go(server: Server, agent: str, url: str, ends_s: float, found: Found) -> None:
    line = await Line.open(server.url, server.token)
    turn = 0
    try:
        while time.monotonic() < ends_s:
            turn += 1
            try:
                await _session(line, agent, url, turn, ends_s, found)
            except Refused as refused:
                found.errors.append(f"{agent}: {refused}")
    finally:
        line.close()


async def _session(line: Line, agent: str, url: str, turn: int, ends_s: float, found: Found) -> None:
    began = now_ms()
    session = await line.call("POST", "/sessions", {"agentId": agent, "url": url, "waitMs": WAIT_MS})
    opened = now_ms()
    try:
        await _work(line, agent, session["tabs"][0]["tabId"], f"{agent} turn {turn}", found)
    finally:
        await line.call("DELETE", f"/sessions/{session['sessionId']}?disposition=close")
    # Those who were still in the queue at the end are not part of it: fewer and fewer compete with them.
    if time.monotonic() < ends_s:
        found.worked[agent] += 1
        found.opens_ms.append(opened - began)
        found.works_ms.append(now_ms() - opened)


async def _work(line: Line, agent: str, tab_id: str, word: str, found: Found) -> None:
    async def act(kind: str, **params: Any) -> Any:
        done = await line.call(
            "POST", f"/tabs/{tab_id}/action", {"kind": kind, "waitPolicy": "wait_with_timeout", **params}
        )
        if not done["ok"]:
            raise Refused(200, done["error"])
        found.commands += 1
        return done["result"]

    def own(what: str, seen: Any, expected: Any) -> None:
        if seen != expected:
            found.cross_talk.append(f"{agent}, {what}: {seen!r} is not {expected!r}")

    own("on arrival", await act("evaluate", expression=ARRIVAL), [agent, f"booth={agent}", "", 0])
    await act("evaluate", expression=f"localStorage.owner = {agent!r}")
    await act("fill", selector="#name", value=word)
    for _ in range(COMMAND_CLICKS):
        await act("click", selector=BUTTON)
    click = {"action": "click", "selector": BUTTON, "tabId": tab_id}
    batch = await line.call("POST", "/tasks/batch", {"agentId": agent, "tasks": [click] * TASK_CLICKS})
    for submitted in batch["tasks"]:
        task = await line.call("GET", f"/tasks/{submitted['taskId']}?waitMs={WAIT_MS}")
        if task["state"] != "done":
            found.lost.append(f"{agent}: a task is {task['state']}: {task['error']}")
        found.tasks += 1
    own("in its snapshot", agent in str(await act("snapshot")), True)
    *stay, clicks = await act("evaluate", expression=STAY)
    own("at the end", stay, [word, f"booth={agent}", agent])
    if clicks < CLICKS:
        found.lost.append(f"{agent}: {clicks} of {CLICKS} clicks arrived")
    elif clicks > CLICKS:
        found.repeated.append(f"{agent}: {clicks} clicks arrived of {CLICKS}")
