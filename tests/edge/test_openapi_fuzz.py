"""Whatever schemathesis makes of our own description, valid or not, is answered as the description says: no 5xx that is
not documented, no undocumented status, no body of another shape."""

from __future__ import annotations

import asyncio

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tabherd.broker.events import EventBus
from tabherd.config import parse
from tabherd.edge import openapi
from tabherd.edge.http import create_app
from tabherd.edge.routes import ROUTES
from tabherd.metrics import Metrics

from .fake_broker import FakeBroker

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES_PER_OPERATION = 10
# Its tasks are those of POST /tasks, and one of them costs as much as all examples of most routes.
BATCH = "/tasks/batch"
BATCH_EXAMPLES = 3

document = openapi.document(ROUTES, "1.0")
# The protocol is a browser's to tell, and there is none here.
schema = schemathesis.openapi.from_dict(document).exclude(path=["/json/protocol", BATCH])
schema.config.generation.update(modes=list(schemathesis.GenerationMode))
batch = schemathesis.openapi.from_dict(document).include(path=BATCH)
batch.config.generation.update(modes=list(schemathesis.GenerationMode))
# Not every bound of every field of every action as well: POST /tasks has them all.
batch.config.phases.coverage.enabled = False


class Target:
    """The application and its tokens, kept over all examples so that they act on each other's sessions."""

    def __init__(self) -> None:
        broker = FakeBroker()
        events = EventBus(epoch=1, ring=16)
        # So that a stream ends after what it has.
        events.close()
        self.app = create_app(
            config=parse({"auth": {"rate_per_s": 1_000_000, "rate_burst": 1_000_000}}),
            broker=broker,  # type: ignore[arg-type]
            events=events,
            metrics=Metrics(),
            node_id="nod_test",
            version="1.0",
            port=7722,
        )
        self.token = asyncio.run(self._token(broker))

    @staticmethod
    async def _token(broker: FakeBroker) -> str:
        token, _ = await broker.credentials.create("fuzz", ["admin"])
        return token


@pytest.fixture(scope="module")
def target() -> Target:
    return Target()


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def ask(case: Case, target: Target) -> None:
    headers = {"Authorization": f"Bearer {target.token}"}
    answer = case.call(base_url="http://127.0.0.1:7722", app=target.app, headers=headers)
    case.validate_response(answer, checks=CHECKS)


@schema.parametrize()
@examples(EXAMPLES_PER_OPERATION)
def test_every_answer_is_documented(case: Case, target: Target) -> None:
    ask(case, target)


@batch.parametrize()
@examples(BATCH_EXAMPLES)
def test_every_answer_to_a_batch_is_documented(case: Case, target: Target) -> None:
    ask(case, target)
