"""Every operation of our own description, asked for what schemathesis makes of it, valid or not.

Played by `test_openapi_fuzz`: schemathesis makes its cases when tests are collected, which takes longer than collecting
all the other tests, and each of the processes that share a run collects them all.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import requests
import schemathesis
import urllib3
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

from tabherd.broker.events import EventBus
from tabherd.config import parse
from tabherd.edge import openapi
from tabherd.edge.http import App, create_app
from tabherd.edge.routes import ROUTES
from tabherd.metrics import Metrics

from .fake_broker import FakeBroker

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# The seed of a long run, in which every bound of every field is tried; none: a short run, always the same.
SEED = os.environ.get("OPENAPI_SEED")
EXAMPLES_PER_OPERATION = 100 if SEED else 3
# Operations that take any action: trying every bound of every field of one of them costs more than all the others.
WIDE = ["/tabs/{tabId}/action", "/tabs/{tabId}/actions", "/tasks", "/tasks/batch", "/nodes/tasks"]


def described() -> OpenApiSchema:
    """All operations but one: the protocol is a browser's to tell, and there is none here."""
    schema = schemathesis.openapi.from_dict(openapi.document(ROUTES, "1.0")).exclude(path="/json/protocol")
    schema.config.generation.update(modes=list(schemathesis.GenerationMode))
    return schema


# Every bound of every field of these bodies is tried also in a short run.
bounds = described().exclude(path=WIDE).exclude(method="GET")
others = described().exclude(
    lambda context: context.operation.path not in WIDE and context.operation.method.upper() != "GET"
)
others.config.phases.coverage.enabled = SEED is not None


class InProcess(requests.Session):
    """Asks the application itself, in one loop for all that is asked.

    Schemathesis can do that too, but makes a client for every request, which goes from thread to thread and looks for
    proxies in the environment: more than twice the work of all the rest.
    """

    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.close()
        super().close()

    def request(  # type: ignore[override]
        self,
        method: str,
        url: str,
        *,
        params: Any = None,
        data: Any = None,
        json: Any = None,
        files: Any = None,
        headers: Any = None,
        cookies: Any = None,
        **_: Any,
    ) -> requests.Response:
        """What it answers, as it is: nobody is redirected and nothing is remembered."""
        asked = requests.Request(method, url, headers, files, data, params, cookies=cookies, json=json).prepare()
        answered = self._loop.run_until_complete(self._answer(asked))
        answer = requests.Response()
        answer.request = asked
        answer.url = asked.url or ""
        answer.raw = answered
        answer.status_code = answered.status
        answer.reason = HTTPStatus(answered.status).phrase
        answer.headers.update(answered.headers)
        answer.encoding = requests.utils.get_encoding_from_headers(answer.headers)
        return answer

    async def _answer(self, asked: requests.PreparedRequest) -> urllib3.HTTPResponse:
        url = urlsplit(str(asked.url))
        body = asked.body.encode() if isinstance(asked.body, str) else asked.body or b""
        headers = [(b"host", url.netloc.encode())]
        headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in asked.headers.items()]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": asked.method,
            "path": unquote(url.path),
            "raw_path": url.path.encode(),
            "root_path": "",
            "scheme": url.scheme,
            "query_string": url.query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 50_000),
            "server": (url.hostname, url.port),
        }
        requested = iter([{"type": "http.request", "body": body}])
        is_over = asyncio.Event()
        messages: list[Any] = []

        async def receive() -> dict[str, Any]:
            for message in requested:
                return message
            await is_over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                is_over.set()

        await self._app(scope, receive, send)
        start, *parts = messages
        content = b"".join(part.get("body", b"") for part in parts)
        return urllib3.HTTPResponse(
            body=io.BytesIO(b"" if asked.method == "HEAD" else content),
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]],
            status=start["status"],
            version=11,
            preload_content=False,
            request_method=asked.method,
        )


class Target:
    """The application and its tokens, kept over all examples so that they act on each other's sessions."""

    def __init__(self) -> None:
        broker = FakeBroker()
        events = EventBus(epoch=1, ring=16)
        # So that a stream ends after what it has.
        events.close()
        app = create_app(
            config=parse({"auth": {"rate_per_s": 1_000_000, "rate_burst": 1_000_000}}),
            broker=broker,  # type: ignore[arg-type]
            events=events,
            metrics=Metrics(),
            node_id="nod_test",
            version="1.0",
            port=7722,
        )
        self.token = asyncio.run(self._token(broker))
        self.session = InProcess(app)

    @staticmethod
    async def _token(broker: FakeBroker) -> str:
        token, _ = await broker.credentials.create("fuzz", ["admin"])
        return token


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    one = Target()
    with one.session:
        yield one


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=SEED is None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def ask(case: Case, target: Target) -> None:
    headers = {"Authorization": f"Bearer {target.token}"}
    answer = case.call(base_url="http://127.0.0.1:7722", session=target.session, headers=headers)
    case.validate_response(answer, checks=CHECKS)


@bounds.parametrize()
@examples(EXAMPLES_PER_OPERATION)
def test_every_answer_is_documented_at_every_bound(case: Case, target: Target) -> None:
    ask(case, target)


@others.parametrize()
@examples(EXAMPLES_PER_OPERATION)
def test_every_answer_is_documented(case: Case, target: Target) -> None:
    ask(case, target)
