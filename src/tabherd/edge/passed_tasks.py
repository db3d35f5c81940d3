"""Tasks of one batch that belong to another node: how they get there.

The node that was asked has checked who asks, and vouches for that with the cluster's key; the other one takes its word.
What is passed on is never passed on again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .. import wire
from ..broker.caller import Caller
from ..broker.task_submission import SubmitAt, Trace
from ..errors import NodeUnreachable, ResourceNotFound, from_wire
from .forward.failures import RETRY_AFTER_MS, Misdirected
from .route import Call, Service
from .routing import Routing

PATH: Final = "/nodes/tasks"
_JSON: Final = ((b"content-type", b"application/json"),)


def submitting_over(routing: Routing) -> SubmitAt:
    """Submits a part of a batch at another node."""

    async def submit_at(node_id: str, caller: Caller, part: wire.SubmitBatch, trace: Trace) -> wire.SubmittedBatch:
        passed = wire.PassedBatch(
            agent_id=caller.agent_id,
            scopes=sorted(caller.scopes),
            controller_id=caller.controller_id,
            request_id=trace.request_id,
            traceparent=trace.traceparent,
            batch=part,
        )
        body = msgspec.json.encode(passed)
        try:
            answer = await routing.links.ask(routing.peer(node_id), "POST", PATH.encode(), body, _JSON)
        except Misdirected:
            raise NodeUnreachable(
                "The tab has moved to another node meanwhile.", retry_after_ms=RETRY_AFTER_MS, nodeId=node_id
            ) from None
        if answer.status >= 300:
            raise from_wire(msgspec.json.decode(answer.body, type=dict), answer.status)
        return msgspec.json.decode(answer.body, type=wire.SubmittedBatch)

    return submit_at


async def submit_passed(service: Service, call: Call) -> wire.SubmittedBatch:
    """Take tasks from another node, for the caller that it names."""
    if call.hop is None or call.hop.client is not None:
        raise ResourceNotFound("There is nothing here but for other nodes.")
    passed: wire.PassedBatch = call.body
    caller = Caller(agent_id=passed.agent_id, scopes=frozenset(passed.scopes), controller_id=passed.controller_id)
    trace = Trace(passed.request_id, passed.traceparent)
    return await service.broker.tasking.verbs.submit_batch(caller, passed.batch, trace)
