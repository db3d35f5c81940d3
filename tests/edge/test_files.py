"""Files over HTTP, against a broker that keeps them in memory: how they come in, how they go out, and what is said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from tabherd.edge.files import disposition
from tabherd.edge.http import App

from .conftest import client_of
from .fake_broker import FakeBroker

FILES = "/sessions/ses_1/files"


@pytest.fixture
async def ada(make_app: Callable[..., App], broker: FakeBroker) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a session, of a server that takes only small requests."""
    token, _ = await broker.credentials.create("ada", ["browse", "files"])
    async with client_of(make_app({"server": {"body_max_bytes": 1_024}}), token) as client:
        assert (await client.post("/sessions", json={})).status_code == 201
        yield client


async def test_a_file_may_be_larger_than_any_request(ada: httpx.AsyncClient, broker: FakeBroker) -> None:
    answer = await ada.post(FILES, params={"name": "large.bin"}, content=b"x" * 5_000)
    assert (answer.status_code, answer.json()) == (
        201,
        {"name": "large.bin", "sizeBytes": 5_000, "path": "/files/large.bin"},
    )
    assert broker.files.declared == [5_000]


async def test_a_file_comes_in_piece_by_piece_when_nobody_says_how_long_it_is(
    ada: httpx.AsyncClient, broker: FakeBroker
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"abc"

    await ada.post(FILES, params={"name": "parts"}, content=pieces())
    assert (broker.files.contents, broker.files.declared) == ({"parts": b"abc" * 3}, [0])


async def test_what_goes_out_is_offered_to_be_saved_and_nothing_else(
    ada: httpx.AsyncClient, broker: FakeBroker
) -> None:
    broker.files.contents["page.html"] = b"<script>alert(1)</script>"
    answer = await ada.get(f"{FILES}/page.html")
    assert (answer.status_code, answer.content) == (200, b"<script>alert(1)</script>")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == "25"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_file_that_was_opened_is_closed(ada: httpx.AsyncClient, broker: FakeBroker, method: str) -> None:
    broker.files.contents["a"] = b"a"
    answer = await ada.request(method, f"{FILES}/a")
    assert answer.headers["content-length"] == "1"
    assert broker.files.closed == 1


async def test_a_file_is_named_as_a_whole_in_the_path(ada: httpx.AsyncClient, broker: FakeBroker) -> None:
    broker.files.contents["a/b é.txt"] = b"found"
    assert (await ada.get(f"{FILES}/a%2Fb%20%C3%A9.txt")).content == b"found"
    assert (await ada.get(f"{FILES}/a/b")).json()["code"] == "not_found"


async def test_a_misspelt_parameter_of_an_upload_is_named(ada: httpx.AsyncClient) -> None:
    answer = await ada.post(FILES, params={"nme": "x"}, content=b"x")
    assert (answer.status_code, answer.json()["details"]["nearest"]) == (400, "name")


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("bill.pdf", "attachment; filename=\"bill.pdf\"; filename*=UTF-8''bill.pdf"),
        ('a "b" \\c.txt', "attachment; filename=\"a _b_ _c.txt\"; filename*=UTF-8''a%20%22b%22%20%5Cc.txt"),
        ("Übersicht.csv", "attachment; filename=\"_bersicht.csv\"; filename*=UTF-8''%C3%9Cbersicht.csv"),
        ("100%.txt", "attachment; filename=\"100_.txt\"; filename*=UTF-8''100%25.txt"),
    ],
)
def test_a_name_is_offered_in_both_spellings(name: str, header: str) -> None:
    assert disposition(name) == header
