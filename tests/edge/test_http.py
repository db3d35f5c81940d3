"""The protocol: whatever is sent, the answer has the right status, shape and headers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import structlog.testing

from tabherd.edge.http import App
from tabherd.errors import NoBrowser, QueueFull
from tabherd.metrics import Metrics

from .conftest import client_of
from .fake_broker import FakeBroker


def assert_error(answer: httpx.Response, status: int, code: str, **details: Any) -> None:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["code"] == code
    assert set(body) - {"retryAfterMs"} == {"code", "message", "retryable", "action", "details"}
    assert body["action"], "every error says what to do next"
    for name, value in details.items():
        assert body["details"][name] == value


# --- Bodies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"{", b"nonsense", b"\xff", b'{"agentId": "a', b'{"agentId": NaN}'])
async def test_a_body_that_is_not_json_is_refused(alice: httpx.AsyncClient, body: bytes) -> None:
    assert_error(await alice.post("/sessions", content=body), 400, "invalid_request", field="body")


async def test_a_string_that_is_not_utf8_is_refused(alice: httpx.AsyncClient) -> None:
    assert_error(await alice.post("/sessions", content=b'{"key": "\xff"}'), 400, "invalid_request", field="body")


async def test_absurd_nesting_is_refused(alice: httpx.AsyncClient) -> None:
    body = b'{"kind": "evaluate", "expression": "f", "args": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert_error(await alice.post("/tabs/tab_1/action", content=body), 400, "invalid_request", field="body")


async def test_a_wrong_type_names_the_field(alice: httpx.AsyncClient) -> None:
    assert_error(await alice.post("/sessions", json={"keepAlive": "yes"}), 400, "invalid_request", field="keepAlive")


async def test_a_value_out_of_bounds_names_the_field(alice: httpx.AsyncClient) -> None:
    assert_error(await alice.post("/sessions", json={"deadlineMs": 1}), 400, "invalid_request", field="deadlineMs")


async def test_a_missing_field_is_named(alice: httpx.AsyncClient) -> None:
    assert_error(await alice.post("/sessions/ses_1/heartbeat", json={}), 400, "invalid_request", field="fence")


async def test_an_empty_body_reads_as_an_empty_object(alice: httpx.AsyncClient) -> None:
    assert (await alice.post("/sessions")).status_code == 201


async def test_an_unknown_field_is_refused_with_the_nearest_known_one(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/sessions", json={"keepalive": True})
    assert_error(answer, 400, "unknown_field", field="keepalive", nearest="keepAlive")


async def test_an_unknown_field_of_an_action_is_compared_with_those_of_its_kind(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/tabs/tab_1/action", json={"kind": "text", "expresion": "1"})
    assert_error(answer, 400, "unknown_field", field="expresion", nearest=None)
    answer = await alice.post("/tabs/tab_1/action", json={"kind": "evaluate", "expresion": "1"})
    assert_error(answer, 400, "unknown_field", field="expresion", nearest="expression")


async def test_an_unknown_action_lists_those_that_exist(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/tabs/tab_1/action", json={"kind": "navigat", "url": "about:blank"})
    assert_error(answer, 400, "unknown_action", nearest="navigate")
    assert "screenshot" in answer.json()["details"]["kinds"]


@pytest.mark.parametrize("kind", [3, None, ["text"]])
async def test_a_kind_that_is_not_text_is_refused(alice: httpx.AsyncClient, kind: object) -> None:
    assert_error(await alice.post("/tabs/tab_1/action", json={"kind": kind}), 400, "invalid_request", field="kind")


async def test_a_body_whose_declared_length_is_too_large_is_refused_unread(
    make_app: Callable[..., App], alice_token: str
) -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    async with client_of(make_app({"server": {"body_max_bytes": 1024}}), alice_token) as client:
        answer = await client.post("/sessions", content=body(), headers={"Content-Length": "1025"})
    assert_error(answer, 413, "body_too_large", cap=1024)


async def test_a_streamed_body_is_refused_once_it_is_too_large(make_app: Callable[..., App], alice_token: str) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1_000):
            sent += 100
            yield b" " * 100

    async with client_of(make_app({"server": {"body_max_bytes": 1024}}), alice_token) as client:
        answer = await client.post("/sessions", content=body())
    assert_error(answer, 413, "body_too_large")
    assert answer.headers["connection"] == "close"
    assert sent <= 1_200


async def test_a_body_in_pieces_is_put_together(alice: httpx.AsyncClient) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'{"key": '
        yield b'"chatgpt"}'

    answer = await alice.post("/sessions", content=body())
    assert answer.json()["key"] == "chatgpt"


# --- Queries, paths, methods ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ("limit=abc", "invalid_request", "limit"),
        ("limit=0", "invalid_request", "limit"),
        ("limit=", "invalid_request", "limit"),
        ("limit=1&limit=2", "invalid_request", "limit"),
        ("limitt=1", "unknown_field", "limitt"),
        ("agentId=%0A", "invalid_request", "agentId"),
        ("state=%FF", "invalid_request", "query"),
        ("&".join(f"a{number}=1" for number in range(1_000)), "invalid_request", "query"),
    ],
)
async def test_a_bad_query_names_the_field(alice: httpx.AsyncClient, query: str, code: str, field: str) -> None:
    assert_error(await alice.get(f"/sessions?{query}"), 400, code, field=field)


async def test_an_unknown_path_is_not_found(alice: httpx.AsyncClient) -> None:
    for path in ("/nothing", "/sessions/", "/sessions/a/b/c", "/sessions//tabs"):
        assert_error(await alice.get(path), 404, "not_found")


async def test_a_wrong_method_says_which_are_right(alice: httpx.AsyncClient) -> None:
    answer = await alice.put("/sessions")
    assert_error(answer, 405, "method_not_allowed", allow=["GET", "HEAD", "POST"])
    assert answer.headers["allow"] == "GET, HEAD, POST"


async def test_an_encoded_slash_stays_within_its_parameter(alice: httpx.AsyncClient) -> None:
    assert_error(await alice.get("/sessions/a%2Fb"), 404, "session_not_found")


async def test_head_answers_like_get_without_the_body(anybody: httpx.AsyncClient) -> None:
    by_get, by_head = await anybody.get("/health"), await anybody.head("/health")
    assert by_head.status_code == 200
    assert by_head.content == b""
    assert by_head.headers["content-length"] == by_get.headers["content-length"]


async def test_an_answer_without_content_has_no_body_headers(alice: httpx.AsyncClient) -> None:
    opened = (await alice.post("/sessions")).json()
    answer = await alice.delete(f"/sessions/{opened['sessionId']}", params={"fence": opened["fence"]})
    assert answer.status_code == 204
    assert "content-length" not in answer.headers


async def test_a_stale_fence_in_the_query_reaches_the_verb(alice: httpx.AsyncClient) -> None:
    opened = (await alice.post("/sessions")).json()
    answer = await alice.delete(f"/sessions/{opened['sessionId']}", params={"fence": opened["fence"] + 1})
    assert_error(answer, 409, "lease_lost")


# --- Errors -----------------------------------------------------------------------------------------------------


async def test_retry_after_is_in_seconds_rounded_up(alice: httpx.AsyncClient, broker: FakeBroker) -> None:
    async def refuse() -> None:
        raise NoBrowser("None.", retry_after_ms=1_001)

    broker.sessions.on_open = refuse
    answer = await alice.post("/sessions")
    assert_error(answer, 503, "no_browser")
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["retryAfterMs"] == 1_001


async def test_backpressure_always_says_when_to_retry(alice: httpx.AsyncClient, broker: FakeBroker) -> None:
    async def refuse() -> None:
        raise QueueFull("Full.")

    broker.sessions.on_open = refuse
    answer = await alice.post("/sessions")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["retryAfterMs"] == 1_000


async def test_an_error_may_carry_another_status_than_its_class(alice: httpx.AsyncClient, broker: FakeBroker) -> None:
    async def refuse() -> None:
        error = QueueFull("Too many callers wait.")
        error.status = 503  # type: ignore[misc]
        raise error

    broker.sessions.on_open = refuse
    assert_error(await alice.post("/sessions"), 503, "queue_full")


async def test_a_bug_is_answered_without_its_secrets_and_logged_with_the_request_id(
    alice: httpx.AsyncClient, broker: FakeBroker
) -> None:
    async def fail() -> None:
        raise ValueError("secret detail")

    broker.sessions.on_open = fail
    with structlog.testing.capture_logs() as lines:
        answer = await alice.post("/sessions", headers={"X-Request-Id": "find-me"})
    assert_error(answer, 500, "internal_error", requestId="find-me")
    assert "secret detail" not in answer.text
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["requestId"] == "find-me"
    assert line["exc_info"]


async def test_refusals_are_counted_by_code(alice: httpx.AsyncClient, metrics: Metrics) -> None:
    await alice.get("/sessions/ses_none")
    assert metrics.registry.get_sample_value("tabherd_rejected_total", {"code": "session_not_found"}) == 1


async def test_requests_are_measured_by_route_not_by_path(alice: httpx.AsyncClient, metrics: Metrics) -> None:
    await alice.get("/sessions/ses_none")
    await alice.get("/nothing")
    for route in ("GET /sessions/{sessionId}", "unmatched"):
        labels = {"route": route, "status": "404"}
        assert metrics.registry.get_sample_value("tabherd_http_request_seconds_count", labels) == 1


async def test_half_a_surrogate_pair_from_a_page_is_answered(alice: httpx.AsyncClient, broker: FakeBroker) -> None:
    await alice.post("/sessions")
    broker.commands.result = "\ud83d"
    answer = await alice.post("/tabs/tab_1/action", json={"kind": "text"})
    assert answer.status_code == 200
    assert b'"\\ud83d"' in answer.content


# --- Tracing ----------------------------------------------------------------------------------------------------

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_request_id_and_traceparent_are_echoed(anybody: httpx.AsyncClient) -> None:
    answer = await anybody.get("/health", headers={"X-Request-Id": "abc-1", "traceparent": TRACEPARENT})
    assert answer.headers["x-request-id"] == "abc-1"
    assert answer.headers["traceparent"] == TRACEPARENT


async def test_request_id_and_traceparent_are_minted_anew_for_each_request(anybody: httpx.AsyncClient) -> None:
    first, second = await anybody.get("/health"), await anybody.get("/nothing")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert first.headers["traceparent"] != second.headers["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", first.headers["traceparent"])


@pytest.mark.parametrize("request_id", ["", "a b", "x" * 129, 'a"b', "<script>"])
async def test_a_request_id_that_could_deface_a_log_is_replaced(anybody: httpx.AsyncClient, request_id: str) -> None:
    answer = await anybody.get("/health", headers={"X-Request-Id": request_id})
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    "traceparent", ["nonsense", f"ff{TRACEPARENT[2:]}", TRACEPARENT.upper(), f"00-{'0' * 32}-1-01"]
)
async def test_a_malformed_traceparent_is_replaced(anybody: httpx.AsyncClient, traceparent: str) -> None:
    answer = await anybody.get("/health", headers={"traceparent": traceparent})
    assert answer.headers["traceparent"] != traceparent


# --- Health and drain -------------------------------------------------------------------------------------------


async def test_anybody_may_ask_whether_the_node_or_a_pool_is_ready(
    anybody: httpx.AsyncClient, broker: FakeBroker
) -> None:
    told = (await anybody.get("/ready")).json()
    assert (told["status"], told["pools"]) == ("ready", {"default": "ready"})
    assert (await anybody.get("/ready", params={"pool": "logins"})).json()["pools"] == {"logins": "ready"}
    broker.is_ready = False
    assert_error(await anybody.get("/ready"), 503, "no_browser")
    broker.operations.is_draining = True
    assert_error(await anybody.get("/ready"), 503, "draining")
    assert (await anybody.get("/health")).status_code == 200


# --- Clients that leave -----------------------------------------------------------------------------------------


class Visit:
    """One request, spoken in ASGI by hand, whose client can leave at a chosen moment."""

    def __init__(self, method: str, path: str, token: str, body: bytes = b"{}") -> None:
        self.left = asyncio.Event()
        self.sent: list[Any] = []
        self._incoming = [{"type": "http.request", "body": body, "more_body": False}]
        self.scope = {
            "type": "http",
            "method": method,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1:7722"), (b"authorization", f"Bearer {token}".encode())],
            "server": ("127.0.0.1", 7722),
            "client": ("127.0.0.1", 50_000),
        }

    async def receive(self) -> Any:
        if self._incoming:
            return self._incoming.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


async def test_a_client_that_leaves_cancels_its_waiting_command(
    make_app: Callable[..., App], broker: FakeBroker, alice_token: str
) -> None:
    broker.commands.is_hanging = True
    visit = Visit("POST", "/tabs/tab_1/action", alice_token, b'{"kind": "text"}')
    serving = asyncio.create_task(make_app()(visit.scope, visit.receive, visit.send))
    await broker.commands.began.wait()
    visit.left.set()
    await serving
    assert broker.commands.cancelled.is_set()
    assert visit.sent == []


async def test_a_session_granted_to_a_client_that_had_left_is_released(
    make_app: Callable[..., App], broker: FakeBroker, alice_token: str
) -> None:
    visit = Visit("POST", "/sessions", alice_token)

    async def leave_at_the_last_moment() -> None:
        visit.left.set()
        # The verb is past the point where it notices a cancellation.
        for _ in range(5):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue

    broker.sessions.on_open = leave_at_the_last_moment
    await make_app()(visit.scope, visit.receive, visit.send)
    assert broker.sessions.released == ["ses_1"]
    assert visit.sent == []


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_not_served(
    make_app: Callable[..., App], broker: FakeBroker, alice_token: str
) -> None:
    visit = Visit("POST", "/sessions", alice_token)
    visit._incoming = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{", "more_body": True}]
    await make_app()(visit.scope, visit.receive, visit.send)
    assert broker.sessions.views == {}
    assert visit.sent == []


async def test_a_server_that_stops_cancels_the_handler_too(
    make_app: Callable[..., App], broker: FakeBroker, alice_token: str
) -> None:
    broker.commands.is_hanging = True
    visit = Visit("POST", "/tabs/tab_1/action", alice_token, b'{"kind": "text"}')
    serving = asyncio.create_task(make_app()(visit.scope, visit.receive, visit.send))
    await broker.commands.began.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert broker.commands.cancelled.is_set()
