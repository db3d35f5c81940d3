"""The crowd's members that use no SDK: unmodified Playwright over CDP, and the control channel `/ws`."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from contextlib import AsyncExitStack
from typing import Any

from picows.websockets import ClientConnection, ConnectionClosed, InvalidStatus, connect
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Playwright

from tabherd import AsyncSession
from tabherd.errors import from_wire

from .agents import Member
from .ledger import Opened, Tried
from .site import effect

# Longer than anything takes that is answered at all.
LIMIT_S = 60
_numbers = itertools.count(1)


class Driving(Member):
    """Leases a session and drives it with Playwright."""

    kind = "cdp"
    # One driver for all of them; set by whoever starts them.
    playwright: Playwright

    async def turn(self) -> None:
        session, opened = await self.lease()
        try:
            # Playwright has its own words for a browser that is gone; what was done is counted by the site.
            try:
                await self.drive(session, opened)
                self.ledger.turns[self.name] += 1
            except PlaywrightError:
                self.ledger.refused["playwright"] += 1
        finally:
            await self.give_back(session, opened)

    async def drive(self, session: AsyncSession, opened: Opened) -> None:
        browser = await self.playwright.chromium.connect_over_cdp(session.cdp_url, timeout=LIMIT_S * 1000)
        try:
            page = browser.contexts[0].pages[0]
            page.set_default_timeout(LIMIT_S * 1000)
            await page.goto(self.site.home(opened.whose))
            for number in range(self.chance.randint(1, 3)):
                tried = self.ledger.intend(Tried(who=f"{opened.whose}.{number}", kind="cdp"))
                await page.fill("#field", tried.who)
                await page.click("#push")
                with self.ledger.timed("cdp"):
                    await page.evaluate(effect(tried.who))
                self.ledger.told(tried, "completed")
                # A page that was opened again has no title yet.
                if (title := await page.title()) not in ("", opened.whose):
                    self.site.crosstalk.append(f"{opened.whose} saw {title!r} over CDP")
                await self.think()
        finally:
            await browser.close()


class Speaking(Member):
    """Leases a session and sends its commands over `/ws`."""

    kind = "ws"

    async def turn(self) -> None:
        session, opened = await self.lease()
        try:
            await self.speak(session, opened)
        except (ConnectionClosed, InvalidStatus, ConnectionError, TimeoutError, OSError):
            self.ledger.refused["socket closed"] += 1
        finally:
            await self.give_back(session, opened)

    async def speak(self, session: AsyncSession, opened: Opened) -> None:
        endpoint = self.herd._link.address.now
        url = endpoint.url.replace("http://", "ws://") + f"/ws?token={endpoint.token}"
        async with asyncio.timeout(LIMIT_S), AsyncExitStack() as until_done:
            try:
                connection = await until_done.enter_async_context(
                    connect(url, ping_interval=None, open_timeout=LIMIT_S)
                )
            except AssertionError as error:
                # The library takes for granted that what did not fail was opened; a socket may also be lost unsaid.
                raise ConnectionError("The socket was lost during the handshake.") from error
            await _ask(connection, "hello", {"agentId": self.name})
            for number in range(self.chance.randint(2, 4)):
                tried = self.ledger.intend(Tried(who=f"{opened.whose}.{number}", kind="command", is_keyed=True))
                action = {"kind": "evaluate", "expression": effect(tried.who)}
                asked = {"tabSessionId": opened.tab_id, "payload": action, "idempotencyKey": tried.who}
                with self.ledger.timed("ws"):
                    answer = await _ask(connection, "command", asked | {"fence": session.fence} | PATIENT)
                if answer["messageType"] == "error":
                    error = from_wire(answer["payload"])
                    self.ledger.told(tried, error.code)
                    self.heard(error)
                    return
                self.ledger.acknowledged(tried, answer["payload"]["commandId"])
                self.ledger.told(tried, answer["payload"]["outcome"])
                self.ledger.turns[self.name] += 1


PATIENT = {"waitPolicy": "wait_with_timeout", "timeoutMs": 30_000}


async def _ask(connection: ClientConnection, message_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    """What it answers; what it tells in between is not for us."""
    number = f"{os.getpid()}-{next(_numbers)}"
    message = {"protocolVersion": "1.0", "messageType": message_type, "requestId": number, "nonce": number}
    await connection.send(json.dumps(message | {"timestamp": int(time.time() * 1000), "payload": payload}))
    while True:
        answer: dict[str, Any] = json.loads(await connection.recv())
        if answer.get("requestId") == number and answer["messageType"] in ("hello_ack", "result", "error"):
            return answer
