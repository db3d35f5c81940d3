"""How a thread sends signs of life: over connections of its own, so that a client beats whose others are all busy."""

from __future__ import annotations

import os
from typing import Any, Final

import httpx
import msgspec

from .. import wire
from ..errors import NotAllowed, NotFound, TabherdError
from .address import Address
from .call import CONNECT_LIMIT_S, Call, decoded, error_of, segment, unreachable, wire_names
from .pulse import Beating, Renewing

# A server that takes longer than this to answer a beat is asked again; sooner where beats are more frequent.
ANSWER_LIMIT_S: Final = 10.0
ANSWER_LIMIT_MIN_S: Final = 1.0


def answer_limit_s(heartbeat_s: float) -> float:
    """How long one beat may stay without an answer."""
    return max(min(heartbeat_s / 2, ANSWER_LIMIT_S), ANSWER_LIMIT_MIN_S)


def sign_of_life(owned: Beating) -> Call[Any]:
    """What says that the owner of a session, or the holder of a lock, lives."""
    return owned.renewal() if isinstance(owned, Renewing) else beat_call(owned)


def beat_call(session: Beating) -> Call[wire.HeartbeatAnswer]:
    """One heartbeat of a session; it may always be repeated."""
    return Call(
        method="POST",
        path=f"/sessions/{segment(session.id)}/heartbeat",
        answer=wire.HeartbeatAnswer,
        body=wire_names({"fence": session.fence, "phase": session.phase}),
        limit_s=answer_limit_s(session.heartbeat_s),
        may_repeat=True,
    )


class Beats:
    """Sends heartbeats from whichever thread asks."""

    def __init__(self, address: Address, transport: httpx.BaseTransport | None = None) -> None:
        self._address = address
        self._transport = transport
        self._open()

    def _open(self) -> None:
        now = self._address.now
        self._pid = os.getpid()
        self._http = httpx.Client(transport=self._transport, verify=now.is_https, trust_env=not now.is_here)

    def send(self, session: Beating) -> Any:
        """One beat; raises the typed error it was refused with, or `NodeUnreachable`."""
        if self._pid != os.getpid():
            # The sockets are its parent's, whose answers must not be read here.
            self._open()
        endpoint, call = self._address.now, sign_of_life(session)
        try:
            answer = self._http.post(
                endpoint.url + call.path,
                content=msgspec.json.encode(call.body),
                headers={**self._address.headers(endpoint), "Content-Type": "application/json"},
                timeout=httpx.Timeout(call.limit_s, connect=min(call.limit_s, CONNECT_LIMIT_S)),
            )
        # A client that is being closed says so with a RuntimeError.
        except (httpx.HTTPError, RuntimeError) as error:
            self._address.look_again()
            raise unreachable(endpoint.url, error, retryable=True) from None
        if answer.is_success:
            return decoded(endpoint.url, call, answer.content)
        refusal = error_of(answer)
        if isinstance(refusal, (NotAllowed, NotFound)) and self._address.look_again():
            raise _elsewhere(endpoint.url)
        raise refusal

    def close(self) -> None:
        """Close its connections."""
        self._http.close()


def _elsewhere(url: str) -> TabherdError:
    """Who answers at the old address knows nothing of the session: not its server."""
    return unreachable(url, ConnectionError("the server has moved"), retryable=True)
