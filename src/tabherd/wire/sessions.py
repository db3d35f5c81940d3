"""Sessions and their tabs, as callers ask for them and see them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .base import DEADLINE_MAX_MS, Agent, Answer, Name, Request


class Owner(Request, frozen=True, kw_only=True):
    """A process on this machine whose death ends the session."""

    pid: Annotated[int, Meta(ge=1, le=1 << 30)]
    # When it started, so that a later process with the same pid is told apart: clock ticks as in /proc/PID/stat, or
    # seconds or milliseconds since 1970. Absent: whatever runs under that pid now.
    start_time: float | None = None


class Viewport(Request, frozen=True, kw_only=True):
    """The size of the page, in CSS pixels."""

    width: Annotated[int, Meta(ge=1, le=10_000)]
    height: Annotated[int, Meta(ge=1, le=10_000)]
    device_scale_factor: Annotated[float, Meta(ge=0.1, le=10)] = 1


class StorageItem(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str


class OriginStorage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    # scheme://host:port
    origin: Annotated[str, Meta(max_length=2_000)]
    local_storage: list[StorageItem] = []


class StorageState(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Cookies and localStorage, in the shape that Playwright reads and writes."""

    # name, value, domain, path, expires (seconds since 1970, -1: with the session), httpOnly, secure, sameSite.
    cookies: list[dict[str, Any]] = []
    origins: list[OriginStorage] = []


class OpenSession(Request, frozen=True, kw_only=True):
    # Whose session; an admin may name anybody, an agent only itself.
    agent_id: Agent | None = None
    pool: Name = "default"
    # The bucket it counts against, e.g. a vendor.
    key: Name = ""
    tier: Name = "default"
    # Absolute life, from now; wins over the tier.
    deadline_ms: Annotated[int, Meta(ge=1_000, le=DEADLINE_MAX_MS)] | None = None
    # How long to wait for a place when all are taken; the pool's acquire_wait_ms when absent.
    wait_ms: Annotated[int, Meta(ge=0, le=120_000)] | None = None
    # Keep it until it is released or its deadline passes, however quiet the owner is.
    keep_alive: bool = False
    # exclusive: only this agent's commands. shared: those of any agent, one after the other; only the owner releases.
    access: Literal["exclusive", "shared"] = "exclusive"
    # What a release into the pool keeps of the page. never: nothing. same-agent: all of it, for this agent and key
    # only. any: all of it, for whoever comes with this key; shared pools only, and their default.
    reuse: Literal["never", "same-agent", "any"] | None = None
    # Its death is proof that the owner is gone.
    owner: Owner | None = None
    # Cookies and localStorage to begin with.
    storage_state: StorageState | None = None
    # First page.
    url: Annotated[str, Meta(max_length=65_536)] | None = None
    viewport: Viewport | None = None
    # Whether a page that died may be opened again at its address; if not, its tab is reported dead.
    allow_navigate: bool = True


class TabBrief(Answer, frozen=True, kw_only=True):
    tab_id: str
    url: str
    title: str


class SessionView(Answer, frozen=True, kw_only=True):
    session_id: str
    agent_id: str
    fence: int
    state: str
    pool: str
    key: str
    tier: str
    node: str
    # The browser that it is in; empty before it is in one.
    browser_id: str = ""
    tabs: list[TabBrief]
    # RFC 3339.
    created_at: str
    expires_at: str
    heartbeat_ms: int
    # When its owner was last heard of: a heartbeat, a command or a read of its own. Of a session on another node only
    # heartbeats are known.
    seen_at: str = ""
    # What its owner is doing, as it said with its last heartbeat that named something; empty when none did.
    phase: str = ""
    keep_alive: bool
    access: str
    reuse: str
    # Why it ended; empty while it has not.
    end_reason: str
    # For Playwright's connect_over_cdp, and for clients that want the WebSocket's own address. Both carry a ticket of
    # whoever asked; empty once it has ended.
    cdp_url: str = ""
    web_socket_debugger_url: str = ""
    # For a person's browser: its first tab, live, on the dashboard. Carries no credential: whoever opens it logs in.
    live_url: str = ""


class SessionPage(Answer, frozen=True, kw_only=True):
    sessions: list[SessionView]
    # Pass it as `cursor` to read on; absent on the last page.
    next_cursor: str | None = None


class Heartbeat(Request, frozen=True, kw_only=True):
    fence: int
    # What the owner is doing, for people who look: send, poll, watch, ...
    phase: Name | None = None


class HeartbeatAnswer(Answer, frozen=True, kw_only=True):
    expires_at: str
    fence: int
    # Commands the owner should stop waiting for.
    cancel: list[str]


class Takeover(Request, frozen=True, kw_only=True):
    # Whose it is from now on.
    agent_id: Agent


class OpenTab(Request, frozen=True, kw_only=True):
    # First page; blank when absent.
    url: Annotated[str, Meta(max_length=65_536)] | None = None
    # Instead of a new tab, one that is open in the browser already: its address or title contains this. It is given
    # back at the end, never closed. Only in pools that share a profile.
    borrow: Annotated[str, Meta(min_length=1, max_length=2_000)] | None = None


class Handoff(Request, frozen=True, kw_only=True):
    # Who takes the tab over, for those who wait; the caller when absent.
    by: Name | None = None


class FileView(Answer, frozen=True, kw_only=True):
    """A file of a session."""

    # Under which it is served; what a site suggested, made harmless and unique.
    name: str
    # What is there of it now.
    size_bytes: int
    # download or upload.
    source: str
    # in_progress, completed or canceled.
    state: str
    # RFC 3339.
    created_at: str
    # Where a download came from.
    url: str | None = None
    # Why it was canceled: canceled, browser_crashed, server_stopped, or the limit that it was over: files_max_bytes,
    # files_max.
    reason: str | None = None


class FilePage(Answer, frozen=True, kw_only=True):
    # Oldest first. Of those that were canceled only the latest are kept.
    files: list[FileView]


class UploadedFile(Answer, frozen=True, kw_only=True):
    # Under which it is served, and which a page sees.
    name: str
    size_bytes: int
    # Where it is on the server's machine: what a CDP client gives to DOM.setFileInputFiles.
    path: str


class TabPage(Answer, frozen=True, kw_only=True):
    tabs: list[TabBrief]


class Holder(Answer, frozen=True, kw_only=True):
    """What has a tab at the moment."""

    # command, tab_lock, quarantine, rebuild or handoff.
    reason: str
    # Of a handoff: who took the tab over.
    controller_id: str
    since: str
    # Of a command or a tab lock: the agent whose it is.
    agent_id: str | None = None
    # Of a tab lock: when it ends by itself.
    expires_at: str | None = None
    # Of a command: its id and kind.
    command_id: str | None = None
    kind: str | None = None


class TabWaiter(Answer, frozen=True, kw_only=True):
    """Who waits for a tab."""

    controller_id: str
    agent_id: str
    # The kind of its command, or tab_lock.
    kind: str
    position: int
    since: str


class TabView(Answer, frozen=True, kw_only=True):
    tab_id: str
    session_id: str
    agent_id: str
    # opening, ready, quarantined, paused, dead, rebuilding or closing.
    state: str
    url: str
    title: str
    # Grows each time the page behind the tab is replaced.
    generation: int
    # created, popup or borrowed.
    provenance: str
    # The tab whose page opened this one.
    opener_tab_id: str | None
    created_at: str
    holder: Holder | None
    waiters: list[TabWaiter]
    # When a newcomer may expect its turn.
    expected_wait_ms: int


class TabList(Answer, frozen=True, kw_only=True):
    tabs: list[TabView]
    # Nodes that did not answer, so that what they have is missing here.
    unreachable: list[str] | msgspec.UnsetType = msgspec.UNSET
