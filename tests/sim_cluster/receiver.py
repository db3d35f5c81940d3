"""Whoever is called when tasks end in a simulated cluster: takes a call, refuses it or is late; messages are lost.

A call travels as a message of the world, so what a node has sent arrives although the node is killed or stopped
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.script import PACE, Pace
from tests.sim.webhook_rules import resolve, told_state

from tabherd.broker.webhook_send import Post, Reply, Unanswered
from tabherd.egress.policy import Address

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World

# How long a call or an answer is on its way.
WAY_S = 0.02
# How often it refuses: in most histories, and in those in which it is hardly ever well.
REFUSE_RATES = (0.15, 0.15, 0.8)
# How often it takes its time, which may be longer than anybody waits.
LATE_RATE = 0.2
LATE_S = 3.0
# How often a call is lost on its way, and how often an answer is.
LOST_RATE = 0.05
# What it says when it refuses: its status, and how long it asks to be left alone.
REFUSALS = (Reply(status=503), Reply(status=500), Reply(status=302), Reply(status=429, retry_after="2"))


class Receiver:
    """At the address that all callbacks name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._refuse_rate = world.script.chance("receiver").choice(REFUSE_RATES)

    def listen(self, life: NodeLife) -> None:
        """This life calls it."""
        rules, webhooks = self._world.webhook_rules, life.broker.tasking.webhooks

        async def find(name: str) -> Sequence[Address]:
            try:
                await asyncio.sleep(PACE.get().random() * WAY_S)
            except asyncio.CancelledError:
                # The node was stopped, and the time for the call is over when it is woken.
                rules.found_nobody(life)
                raise
            return await resolve(name)

        async def send(post: Post) -> Reply:
            if self._world.loop.is_over:
                raise asyncio.CancelledError
            rules.calls(life, post)
            reply = await self._call(post)
            rules.heard(life, post, reply)
            return reply

        webhooks._resolve = find
        webhooks._send = send

    async def _call(self, post: Post) -> Reply:
        """The way there and back, as the caller sees it."""
        answer: asyncio.Future[Reply] = self._world.loop.create_future()
        # Of whoever calls: what happens to a call on its way is part of that.
        pace = PACE.get()
        if pace.strikes("call is lost", LOST_RATE):
            self._later(pace, self._break, answer)
        else:
            self._later(pace, self._arrive, post, answer, pace)
        try:
            async with asyncio.timeout(post.limit_s):
                return await answer
        except TimeoutError:
            raise Unanswered("It did not answer in time.") from None

    def _arrive(self, post: Post, answer: asyncio.Future[Reply], pace: Pace) -> None:
        task_id = post.headers["X-Tabherd-Task-ID"]
        self._world.tell(f"the receiver hears that {task_id} is {told_state(post)}")
        self._world.webhook_rules.arrived(post)
        late_s = pace.random() * LATE_S if pace.strikes("receiver is late", LATE_RATE) else 0.0
        if pace.strikes("receiver refuses", self._refuse_rate):
            refusal = REFUSALS[int(pace.random() * len(REFUSALS))]
            self._later(pace, self._answer, answer, refusal, late_s=late_s)
            return
        # It has taken it, whether or not anybody hears so.
        if pace.strikes("answer of the receiver is lost", LOST_RATE):
            self._later(pace, self._break, answer, late_s=late_s)
        else:
            self._later(pace, self._answer, answer, Reply(status=200), late_s=late_s)

    def _answer(self, answer: asyncio.Future[Reply], reply: Reply) -> None:
        if not answer.done():
            answer.set_result(reply)

    def _break(self, answer: asyncio.Future[Reply]) -> None:
        if not answer.done():
            answer.set_exception(Unanswered("The connection was closed."))
            # Looked at, or asyncio would complain of those whose caller was killed.
            answer.exception()

    def _later(self, pace: Pace, callback: object, *args: object, late_s: float = 0.0) -> None:
        loop = self._world.loop
        loop.call_later(late_s + pace.random() * WAY_S, callback, *args, context=loop.outside)  # type: ignore[arg-type]
