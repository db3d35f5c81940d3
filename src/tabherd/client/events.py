"""Events as the server streams them, read line by line."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import NodeUnreachable


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One message of `/events`."""

    # Resume after it with `events(after=id)`.
    id: str
    type: str
    data: dict[str, Any]


class EventParser:
    """The `text/event-stream` format: fields line by line, an empty line ends a message, ':' starts a comment."""

    def __init__(self, place: str | None = None) -> None:
        # Where the stream stands: what `Last-Event-ID` is told when it breaks off.
        self.place = place
        # Of the message that is being read.
        self._id = ""
        self._type = ""
        self._data: list[str] = []

    def feed(self, line: str) -> ServerEvent | None:
        """The event that this line completes, if it does."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "" if not line:
                return self._complete()
            case "id":
                self._id = value
            case "event":
                self._type = value
            case "data":
                self._data.append(value)
            case _:
                # Comments keep the connection alive; unknown fields are ignored, as the format demands.
                pass
        return None

    def _complete(self) -> ServerEvent | None:
        kind, data = self._type or "message", self._data
        self._type, self._data = "", []
        # Only now: a place that was named in the middle of a message that broke off is not reached.
        self.place = self._id or self.place
        if not data:
            return None
        try:
            fields = msgspec.json.decode("\n".join(data), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise NodeUnreachable(
                f"The stream has an event that is not tabherd's: {error}.",
                action="Check the address, and that nothing stands between this client and the server.",
                retryable=False,
            ) from None
        return ServerEvent(id=self._id, type=kind, data=fields)
