"""The pages bring everything with them, and their policy lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx
import pytest


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_runs_only_its_own_script_and_style(anybody: httpx.AsyncClient, path: str) -> None:
    answer = await anybody.get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for element in ("script", "style"):
        (body,) = re.findall(rf"<{element}>(.*?)</{element}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_loads_nothing_from_elsewhere(anybody: httpx.AsyncClient, path: str) -> None:
    text = (await anybody.get(path)).text
    assert not re.search(r"https?://|//[a-z0-9.-]+/|@import|<iframe|<link[^>]+stylesheet|<script src", text)
    assert not re.search(r"\son\w+=|\sstyle=", text), "inline handlers and styles would be blocked by the policy"


async def test_the_address_that_is_printed_with_a_token_opens_the_page(
    anybody: httpx.AsyncClient, alice_token: str
) -> None:
    answer = await anybody.get("/", params={"token": alice_token})
    assert answer.status_code == 200
    assert alice_token not in answer.text


async def test_metrics_want_a_credential_and_speak_prometheus(
    anybody: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    assert (await anybody.get("/metrics")).status_code == 401
    answer = await alice.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE tabherd_http_request_seconds histogram" in answer.text
