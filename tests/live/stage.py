"""A server with a real broker, fake browsers and fake screencasts: the test is the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.edge.control_house import House, house, until
from tests.live.viewer import LiveClient, watching

from tabherd import wire
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.broker.live import LiveViews
from tabherd.browsers.screencast import Frame, Look

ADMIN = Caller(agent_id="root", scopes=frozenset({"admin"}), controller_id="root/1")


class FakeCast:
    """A screencast of which the test makes the frames, and notes what is done to its page."""

    def __init__(self, url: str, look: Look, show: Callable[[Frame], None]) -> None:
        self.url = url
        self.look = look
        self.show = show
        # How often somebody took the newest frame.
        self.takes = 0
        self.is_awake = False
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.over = asyncio.Event()
        # Cleared: the page does not take input.
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.calls.append((method, dict(params or {})))
        await self.may_answer.wait()
        return {}

    def taken(self) -> None:
        self.takes += 1

    def wake(self, is_awake: bool) -> None:
        self.is_awake = is_awake

    def resize(self, look: Look) -> None:
        self.look = look

    async def wait_closed(self) -> str:
        await self.over.wait()
        return "over"

    async def close(self) -> None:
        self.over.set()

    def paint(self, picture: bytes = b"jpeg") -> None:
        """The page looks like this now."""
        self.show(Frame(jpeg=picture, width=800, height=600, scroll_x=0, scroll_y=0, captured_at=1))

    @property
    def told(self) -> list[str]:
        """What its page was told, in a word or two each."""
        return [
            " ".join(str(params[name]) for name in ("type", "key", "button", "text", "url") if params.get(name))
            for _, params in self.calls
        ]


class Stage:
    """One server, its screencasts, and who watches."""

    def __init__(self, here: House) -> None:
        self.house = here
        self.broker = here.broker
        self.casts: list[FakeCast] = []
        self._tokens: dict[str, str] = {}

        async def open_cast(url: str, look: Look, show: Callable[[Frame], None]) -> Any:
            cast = FakeCast(url, look, show)
            self.casts.append(cast)
            return cast

        self.broker.live = LiveViews(
            settings=self.broker.settings,
            registry=self.broker.registry,
            access=self.broker.tabs._access,
            tabs=self.broker.tabs,
            auditor=self.broker.auditor,
            metrics=self.broker.metrics,
            clock=self.broker.clock,
            open_cast=open_cast,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.house.port}"

    async def cast(self, number: int = 0) -> FakeCast:
        """That screencast, once there is one."""
        await until(lambda: len(self.casts) > number)
        return self.casts[number]

    async def token(self, agent_id: str) -> str:
        """One token of each; root is an admin."""
        if agent_id not in self._tokens:
            scopes = ("admin",) if agent_id == "root" else ()
            self._tokens[agent_id] = await self.house.token(agent_id, *scopes)
        return self._tokens[agent_id]

    @asynccontextmanager
    async def watch(self, tab_id: str, agent_id: str = "ada", *, acks: bool = True) -> AsyncIterator[LiveClient]:
        async with watching(self.url, tab_id, await self.token(agent_id), acks=acks) as viewer:
            yield viewer

    async def run(self, tab_id: str, expression: str, agent_id: str = "ada", **more: Any) -> wire.CommandView:
        """A command of that agent."""
        caller = Caller(agent_id=agent_id, scopes=AGENT_SCOPES, controller_id=f"{agent_id}/1")
        return await self.broker.commands.run(caller, tab_id, wire.Evaluate(expression=expression, **more))

    def crash(self, tab_id: str) -> None:
        """The renderer of that tab's page dies."""
        tab = self.broker.registry.tab(tab_id)
        assert tab is not None
        process = tab.session.require_browser().process  # type: ignore[attr-defined]
        process.crash_page(process.targets[tab.row.target_id])


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    async with house() as here:
        yield Stage(here)
