"""The page that describes the interface brings everything with it, and its policy lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx


async def test_the_page_runs_only_its_own_script_and_style(anybody: httpx.AsyncClient) -> None:
    answer = await anybody.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for element in ("script", "style"):
        (body,) = re.findall(rf"<{element}>(.*?)</{element}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


async def test_the_page_loads_nothing_from_elsewhere(anybody: httpx.AsyncClient) -> None:
    text = (await anybody.get("/docs")).text
    assert not re.search(r"https?://|//[a-z0-9.-]+/|@import|<iframe|<link[^>]+stylesheet|<script src", text)
    assert not re.search(r"\son\w+=|\sstyle=", text), "inline handlers and styles would be blocked by the policy"


async def test_metrics_want_a_credential_and_speak_prometheus(
    anybody: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    assert (await anybody.get("/metrics")).status_code == 401
    answer = await alice.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE tabherd_http_request_seconds histogram" in answer.text
