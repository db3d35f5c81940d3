"""An outbox of webhooks on virtual time, with receivers, name servers and a store that do as they are told."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from ipaddress import ip_address
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
from tests.sim.virtual_loop import VirtualLoop

from tabherd import config, wire
from tabherd.broker.events import Event, EventBus
from tabherd.broker.webhook_send import Post, Reply, Unanswered
from tabherd.broker.webhooks import Webhooks
from tabherd.core.lifecycle import DELIVERY, TaskState, is_terminal
from tabherd.core.model import Delivery, RowT, Task
from tabherd.egress.policy import Address
from tabherd.errors import StoreUnavailable
from tabherd.metrics import Metrics
from tabherd.store.base import Insert, Op, Outcome
from tabherd.store.memory import MemoryStore

PUBLIC = "8.8.4.4"
SECRET = b"a secret of tests"
# Receivers that never answer; the status of one that does.
Behaviour = int | str | Reply


def settings_of(**settings: Any) -> config.Webhooks:
    return config.parse({"webhooks": settings}).webhooks


def ended_task(task_id: str = "tsk_1", url: str = "https://hooks.test/in") -> Task:
    return Task(
        id=task_id, node_id="nod_1", agent_id="ada", state=TaskState.DONE, action="text", callback_url=url, created_at=1
    )


def body_of(task: Task) -> bytes:
    return msgspec.json.encode({"taskId": task.id, "agentId": task.agent_id, "state": task.state, "result": "Grüße"})


class FlakyStore(MemoryStore):
    """Is away while told so, or takes no writes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.is_full = False

    async def apply(self, *ops: Op) -> Outcome:
        self._refuse_if_away()
        if self.is_full:
            raise StoreUnavailable("full", cause="full")
        return await super().apply(*ops)

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        self._refuse_if_away()
        return await super().get(table, id)

    def rows(self, table: type[RowT]) -> list[RowT]:
        return list(self._state.rows.get(table, {}).values())  # type: ignore[arg-type]

    def _refuse_if_away(self) -> None:
        if self.is_away:
            raise StoreUnavailable("away", cause="locked")


class Scene:
    """One node's outbox in its present life, and the world around it."""

    def __init__(self, loop: VirtualLoop, settings: config.Webhooks) -> None:
        self.loop = loop
        self.settings = settings
        self.store = FlakyStore()
        # What each host does when it is called: a status, a whole reply, `hang`, or `broken`.
        self.behaviour: dict[str, Behaviour] = {}
        # Where names lead, one answer after the other, the last one for ever; all others lead to PUBLIC.
        self.names: dict[str, list[Sequence[str]]] = {}
        # Every lookup, and every request with its moment.
        self.looked_up: list[str] = []
        self.sent: list[tuple[int, Post]] = []
        self.inflight: Counter[str] = Counter()
        # The most requests at once, to each host and (as "") to all.
        self.peak: defaultdict[str, int] = defaultdict(int)
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        """Another life of the node, on the same disk."""
        self.lives += 1
        self.events = EventBus(epoch=self.lives, ring=1_000, clock=self.loop.clock_ms)
        self.told = self.events.subscribe()
        self.metrics = Metrics()
        self.webhooks = Webhooks(
            settings=self.settings,
            secret=SECRET,
            node_id="nod_1",
            store=self.store,
            events=self.events,
            metrics=self.metrics,
            clock=self.loop.clock_ms,
            chance=Random(self.lives),
            resolve=self._resolve,
            send=self._send,
        )

    async def end_task(
        self, task_id: str = "tsk_1", url: str = "https://hooks.test/in", event: str = "task.done"
    ) -> Task:
        """A task ends: it and its delivery are on disk."""
        task = ended_task(task_id, url)
        delivery = self.webhooks.delivery_for(task, event, body_of(task))
        await self.store.apply(Insert(task), Insert(delivery))
        self.webhooks.committed(delivery)
        return task

    def row(self, task_id: str = "tsk_1") -> Delivery:
        return next(row for row in self.store.rows(Delivery) if row.id == task_id)

    async def view(self, task_id: str = "tsk_1") -> wire.WebhookView:
        view = await self.webhooks.view(task_id)
        assert view is not None
        return view

    async def settled(self) -> None:
        """Until every delivery is over."""
        await self.until(lambda: all(is_terminal(DELIVERY, row.state) for row in self.store.rows(Delivery)))
        # What was written is told a moment later.
        await asyncio.sleep(0.001)

    async def until(self, is_so: Callable[[], bool], within_s: float = 100_000.0) -> None:
        """Let time pass until something is so."""
        come: asyncio.Future[None] = self.loop.create_future()

        def look() -> bool:
            if not come.done() and is_so():
                come.set_result(None)
                return True
            return False

        self.loop.watches.append(look)
        try:
            async with asyncio.timeout(within_s):
                await come
        finally:
            self.loop.watches.remove(look)

    @property
    def pauses_ms(self) -> list[int]:
        """The time between one request and the next."""
        moments = [at for at, _ in self.sent]
        return [later - earlier for earlier, later in pairwise(moments)]

    def news(self) -> list[Event]:
        found = []
        while (event := self.told.take()) is not None:
            found.append(event)
        return found

    def count(self, outcome: str) -> float:
        return self.metrics.registry.get_sample_value("tabherd_webhook_deliveries_total", {"outcome": outcome}) or 0

    async def _resolve(self, name: str) -> Sequence[Address]:
        self.looked_up.append(name)
        await asyncio.sleep(0.001)
        answers = self.names.get(name, [[PUBLIC]])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        match answer:
            case ["unknown"]:
                raise OSError("no such name")
            case ["hang"]:
                await asyncio.sleep(1_000_000)
        return [ip_address(each) for each in answer]

    async def _send(self, post: Post) -> Reply:
        host = str(post.target.host)
        self.sent.append((self.loop.clock_ms(), post))
        for each in (host, ""):
            self.inflight[each] += 1
            self.peak[each] = max(self.peak[each], self.inflight[each])
        try:
            return await self._answer(host, post.limit_s)
        finally:
            self.inflight.subtract((host, ""))

    async def _answer(self, host: str, limit_s: float) -> Reply:
        match self.behaviour.get(host, 200):
            case int() as status:
                await asyncio.sleep(0.01)
                return Reply(status=status)
            case Reply() as reply:
                return reply
            case "hang":
                await asyncio.sleep(limit_s)
                raise Unanswered("It did not answer in time.")
            case _:
                raise Unanswered("It cannot be connected to: broken.")


Play = Callable[..., Coroutine[Any, Any, None]]


def in_scene(**settings: Any) -> Callable[[Play], Callable[..., None]]:
    """Make a test of a scene that is played with these settings; what else it takes are fixtures."""

    def as_test(play: Play) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            loop = VirtualLoop()
            unheard: list[Any] = []
            loop.set_exception_handler(lambda _, context: unheard.append(context))

            async def run() -> None:
                scene = Scene(loop, settings_of(**settings))
                await scene.webhooks.start()
                try:
                    await play(scene, **fixtures)
                finally:
                    await scene.webhooks.stop()
                left = asyncio.all_tasks() - {asyncio.current_task()}
                assert not left, left

            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(run())
            finally:
                loop.watches.clear()
                loop.close()
                asyncio.set_event_loop(None)
            assert not unheard, unheard

        test.__name__, test.__doc__, test.__module__ = play.__name__, play.__doc__, play.__module__
        signature = inspect.signature(play)
        test.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
        return test

    return as_test
