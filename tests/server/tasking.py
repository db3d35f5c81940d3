"""What tests of tasks have in common: submitting over HTTP, waiting for ends, and scripts whose effects are counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpx

from .effects_site import REPORT

# Before it something that was expected counts as missing.
LIMIT_S: Final = 30.0
OVER: Final = frozenset(("done", "failed", "cancelled", "rejected"))


def reporting(who: str) -> str:
    """Tells the site, and answers when it has been told."""
    return f"{REPORT % who}.then(() => {who!r})"


def held(who: str) -> str:
    """The same, but ends when the site is opened, not before."""
    # Another address for each, or Chromium would ask for one at a time.
    return f"{REPORT % who}.then(() => fetch('/hold?{who}')).then(() => {who!r})"


def submit(client: httpx.Client, expression: str, **fields: Any) -> str:
    """A task that evaluates it; its id."""
    answer = client.post("/tasks", json={"action": "evaluate", "params": {"expression": expression}, **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["taskId"])


def there(url: str, expression: str) -> dict[str, Any]:
    """A task that goes there first: a page that was at work when its command was cut off is replaced by a blank one."""
    return {"steps": [{"kind": "navigate", "url": url}, {"kind": "evaluate", "expression": expression}]}


def submit_there(client: httpx.Client, url: str, expression: str, **fields: Any) -> str:
    """Such a task; its id."""
    answer = client.post("/tasks", json={**there(url, expression), **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["taskId"])


def look(client: httpx.Client, task_id: str, wait_ms: int = 0) -> dict[str, Any]:
    answer = client.get(f"/tasks/{task_id}", params={"waitMs": wait_ms} if wait_ms else {})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def ended(client: httpx.Client, task_id: str) -> dict[str, Any]:
    """How it ended; waits for that."""
    view = look(client, task_id, int(LIMIT_S * 1000))
    assert view["state"] in OVER, view
    return view


def states(client: httpx.Client, task_ids: Iterable[str]) -> list[str]:
    """How they ended."""
    return [ended(client, task_id)["state"] for task_id in task_ids]


def until(is_so: Callable[[], Any]) -> None:
    """Look again and again: what happens in the server tells nobody here."""
    limit_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < limit_s, "it never was"
        time.sleep(0.01)


def until_running(client: httpx.Client, *task_ids: str) -> None:
    until(lambda: all(look(client, task_id)["state"] == "running" for task_id in task_ids))
