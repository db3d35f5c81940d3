"""`Tabherd`, a client that waits for each answer: one method per verb, typed answers, typed errors.

Every refusal is raised as the exception that the server raised (`tabherd.errors`). A server that cannot be reached,
answers with something else than our JSON, or stays silent is `NodeUnreachable`; nothing is retried behind the
caller's back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from .. import config, wire
from ..errors import InvalidRequest, NodeUnreachable, from_wire
from .discovery import discover

Answer = TypeVar("Answer")

# How long an answer may take when the request itself names no time; above the longest wait the server grants.
ANSWER_LIMIT_S = 150.0
# What the way there and back may add to the time that a command names for itself.
MARGIN_S = 10.0
CONNECT_LIMIT_S = 5.0
# Pages that are read when a list is longer than one of them.
PAGES_MAX = 1_000


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One message of `/events`."""

    # Resume after it with `Tabherd.events(after=id)`.
    id: str
    type: str
    data: dict[str, Any]


class Tabherd:
    """A connection to one server; without arguments, to the one that runs on this machine."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, environ: Mapping[str, str] = os.environ
    ) -> None:
        endpoint = discover(url, token, environ)
        # Where the server listens, without a trailing slash.
        self.url = endpoint.url
        try:
            host = urlsplit(endpoint.url).hostname or ""
        except ValueError as error:
            raise InvalidRequest(f"'{endpoint.url}' is not an address: {error}.", field="url") from None
        self._http = httpx.Client(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {},
            timeout=httpx.Timeout(ANSWER_LIMIT_S, connect=CONNECT_LIMIT_S),
            # A proxy from the environment must never see what is meant for this machine, least of all the token.
            trust_env=not config.is_loopback(host),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; sessions stay as they are."""
        self._http.close()

    # --- Sessions -----------------------------------------------------------------------------------------------

    def open_session(self, **fields: Any) -> wire.SessionView:
        """Lease a session; the fields are those of POST /sessions in Python spelling (`agent_id`, `keep_alive`)."""
        return self._ask("POST", "/sessions", wire.SessionView, body=_camel_keys(fields))

    def session(self, session_id: str) -> wire.SessionView:
        """One session as it is now."""
        return self._ask("GET", f"/sessions/{_segment(session_id)}", wire.SessionView)

    def sessions(self, **filters: Any) -> list[wire.SessionView]:
        """Every session the credential may see; filters are `agent_id` and `state`."""
        found: list[wire.SessionView] = []
        query = _camel_keys(filters)
        for _ in range(PAGES_MAX):
            page = self._ask("GET", "/sessions", wire.SessionPage, query=query)
            found += page.sessions
            if page.next_cursor is None:
                break
            query["cursor"] = page.next_cursor
        return found

    def end_session(self, session_id: str, fence: int | None = None, disposition: str | None = None) -> None:
        """Give the session back; with a fence, only if it is still the same lease.

        `disposition` is `pool` (its tab is kept for the next session of its key) or `close`.
        """
        query = _camel_keys({"fence": fence, "disposition": disposition})
        self._request("DELETE", f"/sessions/{_segment(session_id)}", query=query)

    # --- Commands -----------------------------------------------------------------------------------------------

    def act(self, tab_id: str, kind: str, **params: Any) -> wire.CommandView:
        """Run one command on a tab and wait for its outcome; a command that failed raises its typed error."""
        body = {"kind": kind, **_camel_keys(params)}
        timeout_ms = body.get("timeoutMs")
        limit_s = timeout_ms / 1000 + MARGIN_S if isinstance(timeout_ms, int) else ANSWER_LIMIT_S
        path = f"/tabs/{_segment(tab_id)}/action"
        return self._ask("POST", path, wire.CommandView, body=body, limit_s=limit_s)

    # --- Operations ---------------------------------------------------------------------------------------------

    def health(self) -> wire.Health:
        """Whether the server answers at all; needs no credential."""
        return self._ask("GET", "/health", wire.Health)

    def is_ready(self) -> bool:
        """Whether the server takes new work (it does not while it starts or drains)."""
        return self._send("GET", "/ready").is_success

    def browsers(self) -> list[wire.BrowserView]:
        """The Chromium processes under the server's care."""
        return self._ask("GET", "/browsers", wire.BrowserPage).browsers

    def restart_browser(self, browser_id: str) -> wire.BrowserView:
        """End that browser now and start another, where its sessions go on. Needs an admin's credential."""
        return self._ask("POST", f"/browsers/{_segment(browser_id)}/restart", wire.BrowserView)

    def drain_browser(self, browser_id: str) -> wire.BrowserView:
        """Let that browser end with its last session; its replacement starts now. Needs an admin's credential."""
        return self._ask("POST", f"/browsers/{_segment(browser_id)}/drain", wire.BrowserView)

    def stats(self) -> wire.Stats:
        """What each pool has, gives and could give."""
        return self._ask("GET", "/stats", wire.Stats)

    def drain(self) -> wire.NodeDrain:
        """Let the server admit no new session; those that are open go on. Needs an admin's credential."""
        return self._ask("POST", "/drain", wire.NodeDrain)

    def resume(self) -> wire.NodeDrain:
        """Let the server admit sessions again. Needs an admin's credential."""
        return self._ask("DELETE", "/drain", wire.NodeDrain)

    def new_token(self, agent_id: str, scopes: list[str] | None = None) -> wire.AgentToken:
        """A fresh credential for an agent; needs an admin's. The token is shown this once."""
        body = {"agentId": agent_id} if scopes is None else {"agentId": agent_id, "scopes": scopes}
        return self._ask("POST", "/agents", wire.AgentToken, body=body)

    def events(
        self, *, after: str | None = None, silence_s: float | None = None, **filters: Any
    ) -> Iterator[ServerEvent]:
        """The live stream, from now or from just after an event id; ends with the server or after such a silence."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after is not None else {})
        # Silence is normal in a stream, so its length is the caller's choice.
        timeout = httpx.Timeout(silence_s, connect=CONNECT_LIMIT_S)
        try:
            with self._http.stream(
                "GET", "/events", params=_camel_keys(filters), headers=headers, timeout=timeout
            ) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _error_of(answer)
                yield from _parse_events(answer.iter_lines())
        except httpx.ReadTimeout:
            return
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    # --- The one way out ----------------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        limit_s: float = ANSWER_LIMIT_S,
    ) -> Answer:
        answer = self._request(method, path, body=body, query=query, limit_s=limit_s)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as error:
            raise NodeUnreachable(
                f"{self.url}{path} answered something that is not tabherd's: {error}.",
                action="Check the address; client and server should be of one version.",
            ) from None

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        limit_s: float = ANSWER_LIMIT_S,
    ) -> httpx.Response:
        answer = self._send(method, path, body=body, query=query, limit_s=limit_s)
        if not answer.is_success:
            raise _error_of(answer)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        limit_s: float = ANSWER_LIMIT_S,
    ) -> httpx.Response:
        try:
            return self._http.request(
                method,
                path,
                params=dict(query) if query else None,
                content=None if body is None else msgspec.json.encode(body),
                headers=None if body is None else {"Content-Type": "application/json"},
                timeout=httpx.Timeout(limit_s, connect=CONNECT_LIMIT_S),
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> NodeUnreachable:
        return NodeUnreachable(
            f"No answer from {self.url}: {error or type(error).__name__}.",
            action="Check that the server runs ('tabherd status'); its log is server.log in the state directory.",
        )


def _error_of(answer: httpx.Response) -> Exception:
    """The typed error in the body; what is not ours (a proxy's page) is `NodeUnreachable`."""
    try:
        body = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        body = {}
    if not isinstance(body.get("code"), str):
        return NodeUnreachable(
            f"{answer.request.url} answered {answer.status_code} without a tabherd error.",
            action="Check the address, and that nothing stands between this client and the server.",
        )
    return from_wire(body, answer.status_code)


def _parse_events(lines: Iterator[str]) -> Iterator[ServerEvent]:
    """The `text/event-stream` format: fields line by line, an empty line ends a message, ':' starts a comment."""
    event_id, kind, data = "", "", list[str]()
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "" if not line:
                if data:
                    body = msgspec.json.decode("\n".join(data), type=dict[str, Any])
                    yield ServerEvent(id=event_id, type=kind or "message", data=body)
                kind, data = "", []
            case "id":
                event_id = value
            case "event":
                kind = value
            case "data":
                data.append(value)
            case _:
                # Comments keep the connection alive; unknown fields are ignored, as the format demands.
                continue


def _camel_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Python spelling to wire spelling; what is absent (None) is left out."""
    return {_camel(name): value for name, value in fields.items() if value is not None}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _segment(identifier: str) -> str:
    """An id as one path segment: neither a slash nor dots in it may reach another route."""
    if identifier in ("", ".", ".."):
        raise InvalidRequest(f"'{identifier}' is not an id.", field="id")
    return quote(identifier, safe="")
