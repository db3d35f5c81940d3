"""What happens to the crowd: it contends, an agent is killed, a browser, and then the server; each time it goes on.

Each act is told as it happens and answers with the evidence of it. An act that does not come to its good end within
its limit is told as such, and the recount will say the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ... import wire
from ...client.aio import AsyncTabherd
from .crowd import Crowd
from .own_server import OwnServer
from .record import AgentDeath, BrokerDeath, BrowserDeath, Happening, Held, now_ms
from .watch import Watch

# When the acts begin, as parts of the whole time.
ACT_AT: Final = (0.2, 0.45, 0.7)
AFTER_ACT_S: Final = 1.0
# How long a good end is waited for.
RECLAIM_LIMIT_S: Final = 15.0
RECOVERY_LIMIT_S: Final = 20.0
# How long a browser with a session in it is waited for.
BUSY_LIMIT_S: Final = 10.0


class Story:
    """The acts of one demo, and the deaths that they are about."""

    def __init__(
        self, server: OwnServer, admin: AsyncTabherd, crowd: Crowd, watch: Watch, say: Callable[[str], None]
    ) -> None:
        self._server = server
        self._admin = admin
        self._crowd = crowd
        self._watch = watch
        self._say = say
        # Evidence; None while it has not happened.
        self.agent_death: AgentDeath | None = None
        self.browser_death: BrowserDeath | None = None
        self.broker_death: BrokerDeath | None = None

    async def tell(self, seconds: float, *, has_crashes: bool) -> None:
        """All of it; returns when everybody has gone."""
        began_s = now_ms() / 1000
        acts: tuple[Callable[[], Awaitable[None]], ...] = (self._kill_agent, self._kill_browser, self._kill_broker)
        if has_crashes:
            for at, act in zip(ACT_AT, acts, strict=True):
                await _until(began_s + at * seconds)
                await act()
                # Long enough to see them at work again.
                await asyncio.sleep(AFTER_ACT_S)
        await _until(began_s + seconds)
        self._say("Time is up: everybody finishes what they have begun, and goes.")
        await self._crowd.finish()

    # --- Acts ---------------------------------------------------------------------------------------------------

    async def _kill_agent(self) -> None:
        death = self.agent_death = await self._crowd.kill_one()
        self._say(f"kill -9: the process of {death.agent}, while it has a tab.")

        def is_closed(seen: list[Happening]) -> bool:
            return any(each.type == "session.closed" and each.session == death.session for each in seen)

        if await self._watch.until(is_closed, RECLAIM_LIMIT_S):
            self._say(f"  Its session was taken back after {_since(death.killed_ms)}; its place is another's.")
        else:
            self._say(f"  Its session is still open after {_since(death.killed_ms)}.")
        await self._crowd.start_again(death.agent)
        self._say(f"  {death.agent} is started again and queues like everybody else.")

    async def _kill_browser(self) -> None:
        victim = await self._busiest()
        killed_ms = self._server.kill_browser(victim.pid)
        death = self.browser_death = BrowserDeath(pid=victim.pid, killed_ms=killed_ms)
        self._say(f"kill -9: a Chromium (pid {victim.pid}) with {victim.sessions} sessions in it.")

        def is_over(seen: list[Happening]) -> bool:
            since = [each for each in seen if each.at_ms >= death.killed_ms]
            hit = {each.session for each in since if each.type == "session.recovering"}
            over = ("session_recovered", "session.closed", "session_lost")
            return bool(hit) and hit <= {each.session for each in since if each.type in over}

        if await self._watch.until(is_over, RECOVERY_LIMIT_S):
            self._say(f"  All of them are back in another browser after {_since(killed_ms)}, under the same ids.")
        else:
            self._say(f"  Not all of them are back after {_since(killed_ms)}.")

    async def _busiest(self) -> wire.BrowserView:
        """The browser with the most sessions, as soon as there are any."""
        until_s = asyncio.get_running_loop().time() + BUSY_LIMIT_S
        while True:
            browsers = [browser for browser in await self._admin.browsers() if browser.state == "ready"]
            busiest = max(browsers, key=lambda browser: browser.sessions, default=None)
            is_over = asyncio.get_running_loop().time() > until_s
            if busiest is not None and (busiest.sessions or is_over):
                return busiest
            await asyncio.sleep(0.02)

    async def _kill_broker(self) -> None:
        before = [_held(view) for view in await self._admin.sessions(state="active")]
        killed_ms = await self._server.kill()
        self._say(f"kill -9: the server itself, with {len(before)} sessions open. Its browsers run on.")
        started_ms = now_ms()
        await self._server.start()
        ready_ms = now_ms()
        after = [_held(await self._admin.session_view(held.session)) for held in before]
        self.broker_death = BrokerDeath(
            killed_ms=killed_ms, started_ms=started_ms, ready_ms=ready_ms, before=before, after=after
        )
        same = sum(held in after for held in before)
        self._say(f"  Started again: ready {ready_ms - killed_ms:.0f} ms after its death.")
        self._say(f"  {same} of {len(before)} sessions go on as they were; agents did not have to do anything.")


def _held(view: wire.SessionView) -> Held:
    return Held(
        session=view.session_id,
        state=view.state,
        fence=view.fence,
        tabs=sorted(tab.tab_id for tab in view.tabs),
        end_reason=view.end_reason,
    )


def _since(at_ms: float) -> str:
    return f"{now_ms() - at_ms:.0f} ms"


async def _until(at_s: float) -> None:
    await asyncio.sleep(max(0.0, at_s - now_ms() / 1000))
