"""The words in which messages of a CDP client are judged: what is asked, what is known, what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Any, Final, Protocol, TypeAlias

import msgspec

# Chromium's codes.
INVALID_PARAMS: Final = -32602
SERVER_ERROR: Final = -32000


class Kind(StrEnum):
    """What a session is attached to."""

    ROOT = "root"  # the connection itself, or the browser target: the same powers
    TAB = "tab"
    PAGE = "page"
    FRAME = "frame"  # a frame with a process of its own
    WORKER = "worker"
    SERVICE_WORKER = "service_worker"  # it may be stopped while it is attached to, as no other can


class Rule(Enum):
    """What is done with a method."""

    PASS = auto()  # it cannot reach what is not the client's own, whatever its parameters
    CHECK = auto()  # its parameters decide
    EMULATE = auto()  # tabherd answers it
    DENY = auto()


class Tenancy(msgspec.Struct, frozen=True):
    """How the sessions of a pool live together."""

    # They have one context between them: cookies and permissions are everybody's, and ownership is by target.
    is_shared: bool
    # Each has a browser to itself.
    is_alone: bool
    # The middle button pastes what any of them has selected.
    shares_selection: bool = False


class Owner(Protocol):
    """The facts about one client that its messages are judged by."""

    @property
    def context_id(self) -> str:
        """The context of the session; empty where it is shared."""
        ...

    @property
    def download_dir(self) -> str:
        """Where its downloads go."""
        ...

    @property
    def proxy(self) -> Mapping[str, str]:
        """Parameters that every context of the pool is made with: `proxyServer`, `proxyBypassList`; or none."""
        ...

    @property
    def contexts_left(self) -> int:
        """How many more contexts it may make."""
        ...

    @property
    def targets_left(self) -> int:
        """How many more pages it may open."""
        ...

    def owns_context(self, context_id: str) -> bool: ...

    def owns_target(self, target_id: str) -> bool: ...

    def owns_window(self, window_id: int) -> bool: ...

    def owns_download(self, guid: str) -> bool: ...

    def may_read(self, path: str) -> bool:
        """Whether that is a file of the session."""
        ...

    def may_crash(self) -> bool:
        """Whether it may crash one of its pages now; counts."""
        ...


class Forward(msgspec.Struct, frozen=True):
    """Send it to Chromium with these parameters, encoded anew: what was judged is what Chromium reads."""

    params: dict[str, Any]


class Refuse(msgspec.Struct, frozen=True):
    """Do not send it; answer with this error."""

    code: int
    message: str
    # Whether it was an attempt at what is not allowed, which is counted and audited.
    is_denial: bool


Verdict: TypeAlias = Forward | Refuse


class Refused(Exception):
    """How a check ends early; never leaves `rules.check`."""

    def __init__(self, code: int, message: str, *, is_denial: bool = False) -> None:
        super().__init__(message)
        self.refusal = Refuse(code, message, is_denial)


def denied(message: str) -> Refused:
    """For what tabherd does not allow."""
    return Refused(SERVER_ERROR, f"policy_denied: {message}", is_denial=True)


def invalid(message: str) -> Refused:
    """For parameters that no method takes."""
    return Refused(INVALID_PARAMS, f"Invalid parameters: {message}")
