"""Logs carry what a line is about and never a token."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tabherd import logs
from tabherd.broker.credentials import new_token

TOKEN = "th_" + "Ab-_9" * 8 + "xyz"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def configured(level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure("json", level, stream)
    return stream


@pytest.mark.parametrize(
    "text",
    [
        f"GET /json/version?token={TOKEN}&agent=a",
        "GET /?token=some-other-secret HTTP/1.1",
        f"Authorization: Bearer {TOKEN}",
        "authorization: Basic c2VjcmV0OnNlY3JldA==",
        "{'Authorization': 'Bearer some-other-secret'}",
        "[(b'authorization', b'Bearer some-other-secret')]",
        f"the token was {TOKEN}.",
        '{"token": "some-other-secret"}',
    ],
)
def test_a_credential_is_redacted_in_any_notation(text: str) -> None:
    cleaned = logs.redact(text)
    assert "[redacted]" in cleaned
    for secret in (TOKEN, "some-other-secret", "c2VjcmV0"):
        assert secret not in cleaned


@pytest.mark.parametrize("text", ["GET /sessions?agentId=a&limit=3", "tokens left: 4", "author Bearings", "th_short"])
def test_what_is_no_credential_stays(text: str) -> None:
    assert logs.redact(text) == text


def test_redaction_keeps_the_rest_of_the_url() -> None:
    assert logs.redact(f"/x?token={TOKEN}&agent=a#f") == "/x?token=[redacted]&agent=a#f"


def test_real_tokens_are_redacted_whatever_they_end_with() -> None:
    for _ in range(200):
        token = new_token()
        assert token not in logs.redact(f"see {token} there")


def test_a_token_deep_in_a_field_or_a_traceback_does_not_reach_the_line() -> None:
    stream = configured()
    try:
        raise ValueError(f"bad url ws://h/?token={TOKEN}")
    except ValueError:
        logs.get_logger("test").exception("failed", deep={"list": [{"header": f"Bearer {TOKEN}"}]})
    assert TOKEN not in stream.getvalue()
    (line,) = lines_of(stream)
    assert line["event"] == "failed"
    assert "ValueError" in line["exception"]


def test_libraries_that_log_the_old_way_are_redacted_too() -> None:
    stream = configured()
    logging.getLogger("some.library").error("request to ws://h/?token=%s failed", TOKEN)
    (line,) = lines_of(stream)
    assert line["event"] == "request to ws://h/?token=[redacted] failed"
    assert line["level"] == "error"


def test_a_line_carries_what_it_is_about() -> None:
    stream = configured()

    async def request() -> None:
        logs.bind(requestId="req_1", agentId="alice")
        logs.bind(sessionId="ses_1")
        logs.get_logger("broker").info("opened", pool="default")

    asyncio.run(request())
    (line,) = lines_of(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "opened",
        "level": "info",
        "component": "broker",
        "pool": "default",
        "requestId": "req_1",
        "agentId": "alice",
        "sessionId": "ses_1",
    }


def test_what_is_bound_in_one_task_is_not_seen_in_another() -> None:
    stream = configured()
    log = logs.get_logger("test")

    async def request(name: str) -> None:
        logs.bind(requestId=name)
        await asyncio.sleep(0)
        log.info(name)

    async def both() -> None:
        await asyncio.gather(request("a"), request("b"))

    asyncio.run(both())
    assert [(line["event"], line["requestId"]) for line in lines_of(stream)] == [("a", "a"), ("b", "b")]


def test_lines_below_the_level_are_not_written() -> None:
    stream = configured("warning")
    logs.get_logger("test").info("quiet")
    logs.get_logger("test").warning("loud")
    assert [line["event"] for line in lines_of(stream)] == ["loud"]


def test_people_get_console_lines_without_secrets() -> None:
    stream = io.StringIO()
    logs.configure("console", "info", stream)
    logs.get_logger("test").info("hello", url=f"/?token={TOKEN}")
    assert "hello" in stream.getvalue()
    assert TOKEN not in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_tracebacks_for_people_do_not_show_what_variables_hold() -> None:
    stream = io.StringIO()
    logs.configure("console", "info", stream)

    def connect(address: str) -> None:
        raise ValueError("no such database")

    try:
        connect("".join(("hunter", "2")))
    except ValueError:
        logs.get_logger("test").exception("failed")
    assert "no such database" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://herd:{}@db.example/herd",
        "http://h/?ticket={}&node=n",
        "ws://h/live/tab_1?csrf={}",
        "ws://h/devtools/browser/{}",
        "Cookie: tabherd_0123456789ab={}; other=1",
    ],
)
def test_other_secrets_of_an_address_are_redacted(text: str) -> None:
    secret = "Zm9vYmFy-hunter2_"
    assert secret not in logs.redact(text.format(secret))
    assert logs.redact(text.format(secret)) == text.format("[redacted]")


@pytest.mark.parametrize("secret", ["p@ss", "a,b", "a;b", "a&b", "a)b]c}", "a?b", "a#b", "@"])
def test_a_password_is_redacted_whatever_marks_it_has(secret: str) -> None:
    line = f'{{"url": "postgresql://herd:{secret}@db.example/herd", "to": "eva@example"}}'
    assert logs.redact(line) == line.replace(f"{secret}@db", "[redacted]@db")


def test_a_pipe_gets_json_when_nobody_said_otherwise() -> None:
    stream = io.StringIO()
    logs.configure("auto", "info", stream)
    logs.get_logger("test").info("hello")
    assert lines_of(stream)[0]["event"] == "hello"


class FullDisk(io.StringIO):
    """Takes nothing while it is full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_whoever_logs_goes_on_when_the_disk_is_full_and_is_heard_again_when_it_is_not() -> None:
    stream = FullDisk()
    logs.configure("json", "info", stream)
    stream.is_full = True
    logs.get_logger("x").info("lost")
    logging.getLogger("library").warning("lost too")
    stream.is_full = False
    logs.get_logger("x").info("heard")
    assert [line["event"] for line in lines_of(stream)] == ["heard"]
