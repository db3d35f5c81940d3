"""Webhooks: tells receivers of the end of tasks, from an outbox on disk, until they have heard or too often failed to.

Invariants:
- A delivery is written in the same transaction as the end of its task, and is tried only after that is on disk. The
  task is never affected by what becomes of it.
- At least once: each attempt is written down before there is another one, and while the store cannot take that, nothing
  more is sent to that receiver in its place. Only an attempt that a crash of ours cut off is made again unrecorded.
- Each attempt looks the name up and judges its addresses anew, and goes to a judged address and nowhere else.
- What is in memory is bounded by `webhook_queue`, what is under way by `max_inflight`. Bodies are read from disk when
  their turn has come.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from random import Random
from typing import Final, assert_never

import msgspec
import structlog

from .. import __version__, config, wire
from ..core.lifecycle import DELIVERY, DeliveryEvent, DeliveryState, advance, is_terminal
from ..core.model import ArchivedTask, Delivery, Task, changed
from ..egress.policy import Address, Host
from ..errors import InvalidRequest, PolicyDenied
from ..metrics import Metrics
from ..store.base import Delete, Op, Store, Update
from .events import EventBus
from .patience import patiently
from .views import rfc3339
from .webhook_address import Judge, Resolve, read_target, system_resolve
from .webhook_queue import WebhookQueue
from .webhook_send import Post, Send, Unanswered, send_pinned

log = structlog.get_logger("webhooks")

# Rows that are read from disk at once; each has a body.
PAGE: Final = 100
# The clock may be set forward while we sleep, so we look again after this long.
LOOK_AGAIN_MS: Final = 30_000
# The longest pause before another attempt, by our own doubling and by the receiver's wish.
RETRY_MAX_MS: Final = 3_600_000
RETRY_AFTER_MAX_MS: Final = 300_000
# How long attempts that are under way may delay a stop.
STOP_LIMIT_S: Final = 5.0
_PENDING: Final = {"state": DeliveryState.PENDING.value}


class _Failure(msgspec.Struct, frozen=True):
    """Why an attempt failed, and how long the receiver asked us to wait."""

    error: str
    retry_after_ms: int = 0


class _Whose(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of the body: events are shown to the agent whose task it was."""

    agent_id: str = ""


class Webhooks:
    """The outbox of one node."""

    def __init__(
        self,
        *,
        settings: config.Webhooks,
        secret: bytes,
        node_id: str,
        store: Store,
        events: EventBus,
        metrics: Metrics,
        clock: Callable[[], int],
        chance: Random,
        resolve: Resolve = system_resolve,
        send: Send = send_pinned,
    ) -> None:
        self._settings = settings
        self._judge = Judge(settings.allow_hosts)
        self._secret = secret
        self._node_id = node_id
        self._store = store
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self._resolve = resolve
        self._send = send
        self._queue = WebhookQueue(
            max_inflight=settings.max_inflight, max_inflight_per_host=settings.max_inflight_per_host
        )
        # Set when something may be due, or a place has become free.
        self._stir = asyncio.Event()
        # Set when what is on disk only may be read.
        self._has_room = asyncio.Event()
        self._services: list[asyncio.Task[None]] = []
        # Attempts under way, no more than max_inflight.
        self._attempts: set[asyncio.Task[None]] = set()

    # --- For those who end tasks ------------------------------------------------------------------------------

    def check(self, url: str) -> None:
        """Refuse a callback URL that could never be delivered to. Where a name leads is not asked before delivery."""
        self._judge.judge_literal(read_target(url))

    def delivery_for(self, task: Task, event: str, body: bytes) -> Delivery:
        """The row to insert in the transaction that ends the task; the body is the task as it is then."""
        now = self._clock()
        return Delivery(
            id=task.id,
            node_id=self._node_id,
            state=DeliveryState.PENDING,
            url=task.callback_url,
            event=event,
            body=body.decode(),
            created_at=now,
            due_at=now,
            request_id=task.request_id,
            traceparent=task.traceparent,
        )

    def ended(self, task: Task) -> None:
        """That transaction is on disk: deliver."""
        self._queue.hold(task.id, _host_of(task.callback_url), self._clock())
        self._stir.set()

    def committed(self, delivery: Delivery) -> None:
        """A delivery of another node is this one's now, on disk: deliver."""
        self._hold(delivery)
        self._stir.set()

    async def view(self, task_id: str) -> wire.WebhookView | None:
        """How far the delivery of the task is, if it has one."""
        row = await self._store.get(Delivery, task_id)
        if row is None:
            return None
        return wire.WebhookView(
            state=row.state,
            attempts=row.attempts,
            error=row.error,
            next_attempt_at=None if is_terminal(DELIVERY, row.state) else rfc3339(row.due_at),
        )

    async def forget(self, task_ids: Iterable[str]) -> tuple[Op, ...]:
        """What removes the deliveries of tasks that are being forgotten; those that are not over remove themselves."""
        rows = await asyncio.gather(*(self._store.get(Delivery, task_id) for task_id in task_ids))
        return tuple(
            Delete(Delivery, row.id, row.version)
            for row in rows
            if row is not None and is_terminal(DELIVERY, row.state)
        )

    # --- Life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to deliver, with what an earlier life left pending."""
        self._has_room.set()
        self._services = [
            asyncio.create_task(self._deliver_forever(), name="webhooks"),
            asyncio.create_task(self._read_forever(), name="webhooks-read"),
        ]

    async def stop(self) -> None:
        """Begin nothing more, and give what is under way a moment. What is not delivered stays pending on disk."""
        for service in self._services:
            service.cancel()
        if self._services:
            await asyncio.wait(self._services)
        if self._attempts:
            _, unfinished = await asyncio.wait(self._attempts, timeout=STOP_LIMIT_S)
            for attempt in unfinished:
                attempt.cancel()
            if unfinished:
                await asyncio.wait(unfinished)

    def reconfigure(self, settings: config.Webhooks) -> None:
        """From the next attempt on these settings apply; an empty secret keeps the one in force."""
        self._settings = settings
        self._judge = Judge(settings.allow_hosts)
        if settings.secret:
            self._secret = settings.secret.encode()
        self._queue.reconfigure(
            max_inflight=settings.max_inflight, max_inflight_per_host=settings.max_inflight_per_host
        )
        self._stir.set()

    async def _deliver_forever(self) -> None:
        while True:
            self._stir.clear()
            now = self._clock()
            while (task_id := self._queue.take(now)) is not None:
                attempt = asyncio.create_task(self._attempt(task_id), name=f"webhook-{task_id}")
                self._attempts.add(attempt)
                attempt.add_done_callback(self._ended)
            due_at = self._queue.next_due_at
            sleep_ms = LOOK_AGAIN_MS if due_at is None else max(0, min(due_at - now, LOOK_AGAIN_MS))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(sleep_ms / 1000):
                    await self._stir.wait()

    async def _read_forever(self) -> None:
        """Take up what is on disk only, whenever there is room for it."""
        while True:
            await self._has_room.wait()
            self._has_room.clear()
            self._queue.begin_reading()
            after = ""
            while rows := await patiently(partial(self._store.select, Delivery, _PENDING, after=after, limit=PAGE)):
                for row in rows:
                    if row.node_id == self._node_id:
                        self._hold(row)
                self._stir.set()
                if self._queue.is_full:
                    self._queue.stop_reading()
                    break
                after = rows[-1].id

    def _hold(self, row: Delivery) -> None:
        self._queue.hold(row.id, _host_of(row.url), row.due_at)

    def _ended(self, attempt: asyncio.Task[None]) -> None:
        self._attempts.discard(attempt)
        if not attempt.cancelled() and (error := attempt.exception()) is not None:
            log.error("an attempt to deliver a webhook failed by itself", exc_info=error)

    # --- One attempt --------------------------------------------------------------------------------------------

    async def _attempt(self, task_id: str) -> None:
        row = await patiently(partial(self._store.get, Delivery, task_id))
        if row is None or is_terminal(DELIVERY, row.state):
            # It ended between the moment its row was read from disk and the one it was held again.
            self._queue.over(task_id)
        else:
            ended = self._judged(row, await self._try(row))
            await patiently(partial(self._record, ended))
            self._tell(ended, msgspec.json.decode(row.body, type=_Whose).agent_id)
            if is_terminal(DELIVERY, ended.state):
                self._queue.over(task_id)
            else:
                self._queue.again(task_id, ended.due_at)
        if self._queue.wants_more:
            self._has_room.set()
        self._stir.set()

    async def _try(self, row: Delivery) -> _Failure | None:
        """Send it once; None when the receiver has taken it."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._settings.limit_ms / 1000
        try:
            target = read_target(row.url)
            judged = self._judge.judge(target, await self._find(target.host, until_s))
            reply = await self._send(
                Post(
                    target=target,
                    addresses=judged,
                    headers=self._headers(row),
                    body=row.body.encode(),
                    limit_s=until_s - loop.time(),
                )
            )
        except (InvalidRequest, PolicyDenied) as error:
            return _Failure(error.message)
        except Unanswered as error:
            return _Failure(str(error))
        if 200 <= reply.status < 300:
            return None
        if 300 <= reply.status < 400:
            return _Failure(f"It answered {reply.status}; redirects are not followed.")
        return _Failure(f"It answered {reply.status}.", self._wished_ms(reply.retry_after))

    async def _find(self, host: Host, until_s: float) -> Sequence[Address]:
        """Where the host is; asked anew each time."""
        if not isinstance(host, str):
            return (host,)
        try:
            async with asyncio.timeout_at(until_s):
                return await self._resolve(host)
        except TimeoutError:
            raise Unanswered("Nobody said in time where its host is.") from None
        except OSError:
            raise Unanswered("Nobody knows where its host is.") from None

    def _headers(self, row: Delivery) -> dict[str, str]:
        timestamp = str(self._clock() // 1000)
        signature = hmac.new(self._secret, f"{timestamp}.{row.body}".encode(), hashlib.sha256).hexdigest()
        trace = {"X-Request-Id": row.request_id, "traceparent": row.traceparent}
        return {
            **{name: value for name, value in trace.items() if value},
            "Content-Type": "application/json",
            "User-Agent": f"tabherd/{__version__}",
            "X-Tabherd-Event": row.event,
            "X-Tabherd-Task-ID": row.id,
            "X-Tabherd-Timestamp": timestamp,
            "X-Tabherd-Signature": f"sha256={signature}",
        }

    def _wished_ms(self, retry_after: str) -> int:
        """How long the receiver asks us to wait, within bounds; 0 when it does not say, or says what is no time."""
        if retry_after.isascii() and retry_after.isdigit():
            wished_ms = int(retry_after[:10]) * 1000
        else:
            try:
                moment = parsedate_to_datetime(retry_after)
            except (ValueError, OverflowError):
                return 0
            wished_ms = int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000) - self._clock()
        return max(0, min(wished_ms, RETRY_AFTER_MAX_MS))

    def _judged(self, row: Delivery, failure: _Failure | None) -> Delivery:
        """The delivery after an attempt."""
        attempts = row.attempts + 1
        if failure is None:
            event, error = DeliveryEvent.DELIVER, ""
        else:
            event = DeliveryEvent.GIVE_UP if attempts >= self._settings.attempts_max else DeliveryEvent.RETRY
            error = failure.error
        state = advance(DELIVERY, row.state, event)
        if failure is None or is_terminal(DELIVERY, state):
            # Nobody sends the body any more, and the task has all of it.
            return changed(row, state=state, attempts=attempts, error=error, due_at=0, body="")
        pause_ms = max(self._pause_ms(attempts), failure.retry_after_ms)
        return changed(row, state=state, attempts=attempts, error=error, due_at=self._clock() + pause_ms)

    def _pause_ms(self, attempts: int) -> int:
        """Doubled with each attempt, and spread: receivers that were away together are not called together."""
        pause_ms = min(self._settings.retry_ms << (attempts - 1), RETRY_MAX_MS)
        return round(pause_ms * (0.5 + self._chance.random()))

    async def _record(self, ended: Delivery) -> None:
        """Write the attempt down. A conflict says that an earlier try was taken after all: nobody else writes here."""
        if is_terminal(DELIVERY, ended.state) and not await self._is_task_known(ended.id):
            await self._store.apply(Delete(Delivery, ended.id, ended.version))
        else:
            await self._store.apply(Update(ended))

    async def _is_task_known(self, task_id: str) -> bool:
        """Whether somebody can still ask for the task; if not, nobody will forget its delivery either."""
        store = self._store
        return await store.get(Task, task_id) is not None or await store.get(ArchivedTask, task_id) is not None

    def _tell(self, ended: Delivery, agent_id: str) -> None:
        # The address itself may hold secrets, its host does not.
        host = _host_of(ended.url)
        fields = {"taskId": ended.id, "agentId": agent_id, "host": host, "attempts": ended.attempts}
        match ended.state:
            case DeliveryState.DELIVERED:
                self._events.publish("webhook.delivered", **fields)
                log.debug("webhook delivered", **fields)
            case DeliveryState.FAILED:
                self._events.publish("webhook.failed", **fields, reason=ended.error)
                log.warning("webhook given up", **fields, error=ended.error)
            case DeliveryState.PENDING:
                log.info("webhook is tried again", **fields, error=ended.error)
            case _:
                assert_never(ended.state)
        outcome = "retried" if ended.state is DeliveryState.PENDING else ended.state.value
        self._metrics.webhook_deliveries_total.inc(outcome)


def _host_of(url: str) -> str:
    """Whose turn a delivery waits for."""
    try:
        return str(read_target(url).host)
    except InvalidRequest:
        # Written by other rules than today's; it fails when its turn comes.
        return ""
