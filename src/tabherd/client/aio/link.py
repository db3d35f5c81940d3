"""The way to the server: sends calls, waits refusals out, and finds a server again that has started anew.

Invariant: a request that might have been carried out is never sent twice, unless twice is the same as once.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, TypeVar

import httpx
import msgspec

from ...errors import BrowserCrashed, NodeUnreachable, StateConflict, TabherdError
from ..address import Address
from ..beats import sign_of_life
from ..call import CONNECT_LIMIT_S, Call, decoded, error_of, failure, get
from ..patience import wait_before_retry
from ..pulse import Beating
from .seam import pulse_for, sleep

Answer = TypeVar("Answer")

# Shorter than the 75 s for which the server keeps an idle connection, so that none is used that it is just closing.
KEEP_IDLE_S = 60.0


class AsyncLink:
    """Connections to one server, and how patient its user is."""

    def __init__(
        self,
        url: str | None,
        token: str | None,
        agent: str | None,
        patience_s: float,
        environ: Mapping[str, str] = os.environ,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = Address(url, token, agent, environ)
        # How long refusals and an absent server are waited out.
        self.patience_s = patience_s
        self._transport = transport
        self._is_closed = False
        self._open()
        self.pulse, self._beats = pulse_for(self, transport)

    def _open(self) -> None:
        now = self.address.now
        self._pid = os.getpid()
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_LIMIT_S),
            # Who waits in a queue has a connection meanwhile; a crowd may.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=KEEP_IDLE_S),
            # A proxy from the environment must never see what is meant for this machine, least of all the token.
            trust_env=not now.is_here,
            # Reading the certificates takes longer than many a command.
            verify=now.is_https,
            transport=self._transport,
        )

    @property
    def url(self) -> str:
        """Where the server listens, without a trailing slash."""
        return self.address.now.url

    async def close(self) -> None:
        """Close the connections and beat no more. Idempotent."""
        self._is_closed = True
        self.pulse.close()
        if self._beats is not None:
            self._beats.close()
        await self._http.aclose()

    async def ask(self, call: Call[Answer]) -> Answer:
        """Send the call and read its answer."""
        return decoded(self.url, call, await self.send(call))

    async def send(self, call: Call[Any]) -> bytes:
        """Send the call, again if need be, until it is answered or patience is at its end."""
        began_s, attempt = monotonic(), 0
        while True:
            try:
                answer = await self.send_once(call)
                if answer.is_success:
                    return answer.content
                raise error_of(answer)
            except TabherdError as error:
                wait_s = wait_before_retry(
                    error, attempt, monotonic() - began_s, self._patience(call, error), self.chance()
                )
                if wait_s is None:
                    raise
            await sleep(wait_s)
            attempt += 1
            self.address.look_again()

    async def send_once(self, call: Call[Any]) -> httpx.Response:
        """One attempt; an answer of any kind, or the typed error that says what its absence means."""
        http, endpoint = self._connections(), self.address.now
        headers = self.address.headers(endpoint)
        content = call.content() if call.content is not None else None
        if call.body is not None:
            content = msgspec.json.encode(call.body)
            headers["Content-Type"] = "application/json"
        try:
            return await http.request(
                call.method,
                endpoint.url + call.path,
                params=call.query or None,
                content=content,
                headers=headers,
                timeout=httpx.Timeout(call.limit_s, connect=CONNECT_LIMIT_S),
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise failure(endpoint.url, call, error) from None

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, Any], headers: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[httpx.Response]:
        """A read whose answer comes bit by bit; `httpx` errors of the reading are the reader's, silence included."""
        http, endpoint = self._connections(), self.address.now
        request = http.build_request(
            "GET",
            endpoint.url + path,
            params=query,
            headers={**self.address.headers(endpoint), **headers},
            timeout=httpx.Timeout(silence_s, connect=CONNECT_LIMIT_S),
        )
        try:
            answer = await http.send(request, stream=True)
        except httpx.ReadTimeout:
            raise
        except httpx.HTTPError as error:
            raise failure(endpoint.url, get(path, bytes), error) from None
        try:
            if not answer.is_success:
                await answer.aread()
                raise error_of(answer)
            yield answer
        finally:
            await answer.aclose()

    async def beat(self, session: Beating) -> Any:
        """Say once that the owner of the session, or the holder of the lock, lives."""
        call = sign_of_life(session)
        answer = await self.send_once(call)
        if not answer.is_success:
            raise error_of(answer)
        return decoded(self.url, call, answer.content)

    def _connections(self) -> httpx.AsyncClient:
        if self._is_closed:
            raise StateConflict("This client is closed.", action="Make another one.")
        if self._pid != os.getpid():
            # A forked child has its parent's sockets: two processes on one connection would read each other's answers.
            self._open()
        return self._http

    def _patience(self, call: Call[Any], error: TabherdError) -> float:
        if call.is_kept and isinstance(error, BrowserCrashed):
            # That is its outcome now; it would only be told again.
            return 0.0
        # Who limits how long a refusal is waited out does not mean a server that is being restarted.
        if call.patience_s is None or (isinstance(error, NodeUnreachable) and not call.is_timed):
            return self.patience_s
        return min(call.patience_s, self.patience_s)

    def chance(self) -> float:
        """A number from [0, 1) that spreads a crowd."""
        return random.random()
