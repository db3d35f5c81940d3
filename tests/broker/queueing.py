"""Callers that queue for a tab, for tests of the gate as the broker runs it.

A command with a label that ends in `held` has the tab until the house lets it finish; `WAIT` makes one wait its turn.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.broker.house import ADA, ADMIN, House

from tabherd import errors, wire
from tabherd.broker.caller import Caller

WAIT: dict[str, Any] = {"wait_policy": "wait_with_timeout"}

Sent = asyncio.Task[wire.CommandView]

# One of each kind of command: what binds one must bind all.
ACTIONS: Final[tuple[wire.AnyAction | wire.Steps, ...]] = (
    wire.Navigate(url="https://shop.test/"),
    wire.Reload(),
    wire.Evaluate(expression="1"),
    wire.Click(selector="a"),
    wire.Text(),
    wire.Snapshot(),
    wire.Screenshot(),
    wire.Cookies(),
    wire.Close(),
    wire.Steps(steps=[wire.Text()]),
)


async def begin(house: House, session: wire.SessionView, label: str, caller: Caller = ADA, **fields: Any) -> Sent:
    """Send a command and go on as soon as it has been accepted, or refused."""
    sent = asyncio.ensure_future(house.act(session, label, caller, **fields))
    await asyncio.sleep(0)
    return sent


async def hold(house: House, session: wire.SessionView, label: str = "first-held", caller: Caller = ADA) -> Sent:
    """Have the tab until `house.finish(label)`."""
    sent = await begin(house, session, label, caller)
    await house.until(lambda: house.page(session).active == label)
    return sent


async def lock(
    house: House, session: wire.SessionView, caller: Caller = ADA, **fields: Any
) -> asyncio.Task[wire.TabLockView]:
    """Ask for the tab lock and go on as soon as that is in the queue."""
    asked = asyncio.ensure_future(
        house.broker.tab_locks.lock(caller, session.tabs[0].tab_id, wire.LockTab(**fields)),
    )
    await asyncio.sleep(0)
    return asked


async def failure_of(sent: asyncio.Future[Any]) -> errors.TabherdError:
    """What a caller hears whose request does not succeed."""
    try:
        answer = await sent
    except errors.TabherdError as error:
        return error
    raise AssertionError(f"it succeeded: {answer}")


def labels(house: House) -> list[str]:
    """What was sent to pages, in order."""
    return [label for _, label in house.sent]


def view(house: House, session: wire.SessionView) -> wire.TabView:
    """The session's first tab as a reader sees it."""
    return house.broker.tabs.get(ADMIN, session.tabs[0].tab_id)


def tickets(house: House) -> dict[str, int]:
    """What every controller has in all queues."""
    return house.broker._registry.tickets
