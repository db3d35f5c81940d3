"""The server that `bench http` measures answers what the real one would, so that no error is ever timed."""

from __future__ import annotations

import contextlib
import io

import httpx
from bench import http as bench_http


async def test_both_measured_routes_answer() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app = await bench_http._tabherd(7722)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7722") as client:
        assert (await client.get("/health")).status_code == 200
        token = printed.getvalue().split()[0]
        answer = await client.get("/browsers", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()) == (200, {"browsers": []})
