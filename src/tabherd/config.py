"""Every setting, its unit and its bounds.

A key that does not exist is refused by name, with the nearest one that does. A value out of bounds, or two values
that contradict each other, are refused at start. Only settings that something reads are listed here.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .config_checks import DEBUG_PORTS as DEBUG_PORTS
from .config_checks import cross_check, host_of
from .config_checks import is_loopback as is_loopback
from .errors import InvalidRequest, UnknownField

ENV_PREFIX = "TABHERD_"
# What a pool whose sessions share one profile has room for, unless it says otherwise.
SHARED_ACTIVE = 16
SHARED_ACTIVE_PER_KEY = 5
SHARED_TABS = 20
# Most sessions that one browser may be told to carry.
SESSIONS_PER_BROWSER_MAX = 1_000
# Variables with the prefix that are not settings.
ENV_RESERVED = frozenset(
    {"TABHERD_CONFIG", "TABHERD_STATE", "TABHERD_TOKEN", "TABHERD_URL", "TABHERD_BROWSER", "TABHERD_AGENT"}
)

Port = Annotated[int, Meta(ge=0, le=65_535)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[int, Meta(ge=1, le=30 * 24 * 3600)]
Millis = Annotated[int, Meta(ge=1, le=24 * 3600 * 1000)]
Hosts = Annotated[tuple[str, ...], Meta(max_length=10_000)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file."""


class Server(Section, frozen=True, kw_only=True):
    # Address to listen on. Anything but loopback needs auth.
    host: str = "127.0.0.1"
    # Port to listen on; 0 picks a free one.
    port: Port = 7722
    # Host names, besides the address itself and localhost, under which browsers and clients may reach the server.
    allowed_hosts: tuple[str, ...] = ()
    # Largest request body.
    body_max_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 1 << 20
    # MCP sessions over HTTP that may be open at once.
    mcp_sessions_max: Count = 1_000
    # The same of one credential.
    mcp_sessions_per_credential: Count = 100
    # An MCP session with no request and no open stream for so long ends, and gives back what it leased.
    mcp_idle_s: Seconds = 600
    # How many past events an SSE client can resume from.
    events_ring: Annotated[int, Meta(ge=16, le=1_000_000)] = 10_000
    # How long running work may take to finish after the first SIGTERM.
    drain_s: Annotated[int, Meta(ge=0, le=3600)] = 30
    # json for machines, console for people, auto: console on a terminal.
    log_format: Literal["auto", "json", "console"] = "auto"
    # Least severe lines that are written.
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Auth(Section, frozen=True, kw_only=True):
    # Without auth every caller is an admin; refused on any address but loopback.
    enabled: bool = True
    # Requests per second that an agent's credential may send on average; admins are exempt.
    rate_per_s: Annotated[int, Meta(ge=1, le=1_000_000)] = 500
    # How many of them may come at once after a pause.
    rate_burst: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000


class Pool(Section, frozen=True, kw_only=True):
    # launch: tabherd starts the browsers and ends them. attach: it uses one that runs already, and never ends it.
    source: Literal["launch", "attach"] = "launch"
    # Where that one listens: http://host:port, or the ws:// address of its control socket. Only with source attach.
    endpoint: str = ""
    # auto prefers the light headless build; or headless-shell, chromium, chrome; or the path of a binary.
    browser: str = "auto"
    # Without a window.
    headless: bool = True
    # Extra command-line flags for the browser. Features that these turn off are turned off besides ours.
    flags: tuple[str, ...] = ()
    # How long one start may take.
    start_limit_ms: Annotated[int, Meta(ge=1_000, le=300_000)] = 20_000
    # context: a private context per session in a shared browser. browser: a browser per session. shared: tabs in one
    # profile, whose cookies all sessions share.
    isolation: Literal["context", "browser", "shared"] = "context"
    # Directory of the profile that a shared pool keeps, with its logins; empty: a fresh one that is thrown away.
    profile_dir: str = ""
    # Fewest browsers, with or without sessions.
    browsers_min: Annotated[int, Meta(ge=0, le=64)] = 1
    # Most browsers, started when callers wait or the warm stock runs low. Shared pools have 1 unless told otherwise;
    # with source attach or a profile_dir there is never another. On one machine all pools together can have 17: there
    # are no more ports that are safe for a debugger.
    browsers_max: Annotated[int, Meta(ge=1, le=64)] = 4
    # Sessions in one browser: how many a single crash can take along. 1 with isolation browser; in shared pools at
    # least max_tabs, unless told otherwise.
    sessions_per_browser: Annotated[int, Meta(ge=1, le=SESSIONS_PER_BROWSER_MAX)] = 25
    # Contexts with a blank tab that are kept ready, so that opening a session costs a millisecond.
    warm: Annotated[int, Meta(ge=0, le=1_000)] = 4
    # A browser above the fewest is ended after so long without a session.
    shrink_after_s: Seconds = 60
    # Hosts that pages may reach, and no others: names, *.names, addresses, networks (10.0.0.0/8). Empty: no such limit.
    allow_hosts: Hosts = ()
    # Hosts that pages never reach, written alike. Wins over allow_hosts.
    deny_hosts: Hosts = ()
    # Pages do not reach addresses that are not public: this machine, the networks around it, cloud metadata. Addresses
    # in allow_hosts and in pinned_hosts are exempt.
    deny_private_networks: bool = False
    # Names and the address each has for pages, which is then not looked up, and may be private.
    pinned_hosts: Annotated[dict[str, str], Meta(max_length=10_000)] = {}
    # How dialogs of pages (alert, confirm, prompt) are answered when the command that runs does not say. Pages that ask
    # whether they may be left are left in any case.
    dialogs: Literal["dismiss", "accept"] = "dismiss"
    # How often a browser is asked whether it answers.
    probe_every_ms: Annotated[int, Meta(ge=50, le=60_000)] = 1_000
    # How long it may take; the second miss in a row kills it, or the fifth while it is at work.
    probe_limit_ms: Annotated[int, Meta(ge=50, le=60_000)] = 1_000
    # A browser is replaced after so many sessions, never under a live one.
    recycle_sessions: Annotated[int, Meta(ge=1, le=1_000_000)] = 500
    # The same by age.
    recycle_age_s: Seconds = 6 * 3600
    # The same by memory (proportional set size of all its processes).
    recycle_pss_mb: Annotated[int, Meta(ge=64, le=1_000_000)] = 4_096
    # So many crashes (hang kills and failed starts count) in the window open a slot's circuit: no start for a while.
    breaker_crashes: Annotated[int, Meta(ge=1, le=1_000)] = 3
    # The window in which they are counted, and for which a browser must live to close the circuit again.
    breaker_window_s: Seconds = 60
    # How long it stays open at first; doubles each time.
    breaker_open_s: Seconds = 30
    # How long it stays open at the most.
    breaker_open_max_s: Seconds = 300
    # How long a caller that does not say waits for a session; absent: 0 for shared pools, 30 000 for the others.
    acquire_wait_ms: Annotated[int, Meta(ge=0, le=120_000)] | None = None
    # Callers that may wait at once.
    max_waiters: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    # Sessions open at once in the pool; 0: derived from this machine's memory. Absent in a shared pool: 16.
    max_active: Annotated[int, Meta(ge=0, le=10_000)] = 0
    # The same for one key, except the empty one, which is never capped; 0: no such cap. Absent in a shared pool: 5.
    max_active_per_key: Annotated[int, Meta(ge=0, le=10_000)] = 0
    # The same for one agent; 0: no such cap.
    max_active_per_agent: Annotated[int, Meta(ge=0, le=10_000)] = 0
    # Tabs that were given back and are kept for the next session with their key; what does not fit is closed.
    max_pooled: Annotated[int, Meta(ge=1, le=10_000)] = 14
    # The same for one key, except the empty one; 0: no such cap.
    max_pooled_per_key: Annotated[int, Meta(ge=0, le=10_000)] = 5
    # How long such a tab is kept.
    pooled_ttl_s: Seconds = 1_800
    # Pages open at once in the pool, popups and pooled tabs included; the oldest pooled tab makes room for a new page.
    # 0: no such cap; absent: 20 for shared pools (or max_active, if that is more), no such cap for the others.
    max_tabs: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    # Bytes of files that one session may have, downloads and uploads together; a download that goes over is cancelled.
    files_max_bytes: Annotated[int, Meta(ge=1_024, le=1 << 44)] = 1 << 30
    # Files that one session may have.
    files_max: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    # How often an owner that sends heartbeats is asked to.
    heartbeat_s: Seconds = 60
    # A session whose last heartbeat is older than this ends, unless there is another sign of life: an open
    # connection, work, or a live owner process.
    stale_after_s: Seconds = 180
    # Sessions with no connection, heartbeat or named owner end after this long without a command or read.
    idle_ttl_s: Seconds = 180
    # A session that lives by its connections outlives the last one this long, for a reconnect.
    disconnect_grace_s: Annotated[int, Meta(ge=0, le=3_600)] = 10
    # How long after the death of the owner process a successor may still send a beat or command and keep the session.
    owner_dead_grace_ms: Annotated[int, Meta(ge=0, le=600_000)] = 2_000
    # A session past its deadline serves nothing any more; so much later it is taken down.
    deadline_grace_s: Annotated[int, Meta(ge=0, le=3_600)] = 120

    @property
    def is_single(self) -> bool:
        """Whether there can be only one browser: the one that runs already, or the one that has the profile."""
        return self.source == "attach" or bool(self.profile_dir)

    @property
    def shares_selection(self) -> bool:
        """Whether a middle click pastes what another session has selected: browsers that tabherd starts do not."""
        return self.source == "attach" and self.isolation != "browser"

    @property
    def has_network_policy(self) -> bool:
        """Whether its pages reach the network only through a proxy that judges where to."""
        return bool(self.allow_hosts or self.deny_hosts or self.deny_private_networks or self.pinned_hosts)

    @property
    def wait_ms(self) -> int:
        """How long a caller that does not say waits for a session."""
        if self.acquire_wait_ms is not None:
            return self.acquire_wait_ms
        return 0 if self.isolation == "shared" else 30_000

    @property
    def tabs_max(self) -> int:
        """How many pages may be open at once; 0: any number."""
        if self.max_tabs is not None:
            return self.max_tabs
        return max(SHARED_TABS, self.max_active) if self.isolation == "shared" else 0


class Gate(Section, frozen=True, kw_only=True):
    # Time for one command that names none, queue and execution together.
    timeout_ms: Millis = 30_000
    # Least time a command gets, however little it asks for.
    timeout_floor_ms: Millis = 100
    # How long a tab lock lasts that names no time of its own, unless it is renewed.
    lock_lease_ms: Millis = 30_000
    # Places in one tab's queue; one controller may have half of them.
    tickets_per_tab: Count = 20
    # Places of one controller in the queues of all tabs together.
    tickets_per_controller: Count = 100


class Scheduler(Section, frozen=True, kw_only=True):
    # Whether tasks are taken and run; those that wait stay where they are meanwhile.
    enabled: bool = True
    # Tasks that run at once.
    workers: Annotated[int, Meta(ge=1, le=1_000)] = 20
    # Tasks of one agent that run at once.
    max_inflight_per_agent: Annotated[int, Meta(ge=1, le=1_000)] = 10
    # Tasks that may wait.
    queue_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000
    # Tasks of one agent that may wait.
    queue_max_per_agent: Annotated[int, Meta(ge=1, le=10_000_000)] = 1_000
    # How long a task has that names no deadline.
    deadline_ms: Millis = 60_000
    # Each that a task has waited makes up for one level of priority; 0: priorities are strict.
    priority_aging_ms: Annotated[int, Meta(ge=0, le=24 * 3600 * 1000)] = 60_000
    # How often an idempotent task is run at the most.
    attempts_max: Annotated[int, Meta(ge=1, le=100)] = 3
    # How long the result of a task is kept at hand before it goes into the archive.
    result_ttl_s: Seconds = 300


class Locks(Section, frozen=True, kw_only=True):
    # Where locks are kept: postgresql://..., or file:///directory; empty: in the store's database if that is
    # PostgreSQL, else in files of the state directory. Programs that name no address of their own use the same.
    url: str = ""
    # Connections to PostgreSQL that locks may have at once, in each process: one for each lock that is held or waited
    # for.
    max_connections: Annotated[int, Meta(ge=1, le=10_000)] = 25
    # A connection that is silent for so long is probed, by both sides, and given up after as long again; then its
    # lock is free.
    keepalive_s: Annotated[int, Meta(ge=1, le=3_600)] = 10
    # How long a named lock is held over HTTP that names no time of its own, unless it is renewed.
    lease_ms: Annotated[int, Meta(ge=100, le=24 * 3600 * 1000)] = 30_000
    # Locks that may be held through this server at once.
    held_max: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    # Callers of this server that may wait for locks at once.
    waiters_max: Annotated[int, Meta(ge=1, le=100_000)] = 2_000
    # The same for one lock.
    waiters_per_name: Annotated[int, Meta(ge=1, le=100_000)] = 500


class Webhooks(Section, frozen=True, kw_only=True):
    # Signs what is delivered (HMAC-SHA256); empty: a secret that is made once and kept in the state directory.
    secret: str = ""
    # Hosts (or addresses) that may be called although they are private, loopback or link-local.
    allow_hosts: Hosts = ()
    # How often a delivery is tried.
    attempts_max: Annotated[int, Meta(ge=1, le=100)] = 5
    # How long after its first failure it is tried again; doubled with each.
    retry_ms: Millis = 1_000
    # How long a receiver may take to answer.
    limit_ms: Millis = 10_000
    # Deliveries that are under way at once.
    max_inflight: Annotated[int, Meta(ge=1, le=1_000)] = 32
    # Deliveries to one host that are under way at once.
    max_inflight_per_host: Annotated[int, Meta(ge=1, le=1_000)] = 4


class Retention(Section, frozen=True, kw_only=True):
    # How long tasks that are over are kept in the archive.
    tasks_s: Seconds = 7 * 24 * 3600
    # How many of them are kept; the oldest go first.
    tasks_max: Annotated[int, Meta(ge=1, le=100_000_000)] = 1_000_000
    # How many tasks that were rejected are kept.
    rejected_max: Annotated[int, Meta(ge=0, le=1_000_000)] = 1_000


class Cluster(Section, frozen=True, kw_only=True):
    """Of nodes that share a PostgreSQL store."""

    # Where other nodes reach this one; empty: the address that it listens on.
    url: str = ""
    # How often a node says that it lives.
    beat_s: Annotated[float, Meta(ge=0.05, le=60)] = 3.0
    # Without a beat for this long it distrusts itself and takes no commands.
    pause_after_s: Annotated[float, Meta(ge=0.1, le=600)] = 7.0
    # Without a beat for this long others take over what it had.
    dead_after_s: Annotated[float, Meta(ge=0.2, le=600)] = 10.0
    # PostgreSQL itself, where the store's address is that of a pooler such as PgBouncer: for being woken by others.
    # Empty: the store's address. Behind a pooler, nodes look by themselves once a second instead.
    direct_url: str = ""


DEFAULT_TIERS: Mapping[str, int] = {"instant": 120, "default": 1_200, "pro": 3_600, "deep": 3_600}


class Config(Section, frozen=True, kw_only=True):
    # sqlite:///path, postgresql://user@host/database (shared by any number of nodes), memory:// (nothing survives), or
    # empty: tabherd.db in the state directory.
    store: str = ""
    server: Server = msgspec.field(default_factory=Server)
    auth: Auth = msgspec.field(default_factory=Auth)
    pools: dict[str, Pool] = msgspec.field(default_factory=lambda: {"default": Pool()})
    # Named session deadlines, in seconds. The four built-in ones can be changed, others added.
    tiers: dict[str, Seconds] = msgspec.field(default_factory=lambda: dict(DEFAULT_TIERS))
    gate: Gate = msgspec.field(default_factory=Gate)
    scheduler: Scheduler = msgspec.field(default_factory=Scheduler)
    locks: Locks = msgspec.field(default_factory=Locks)
    webhooks: Webhooks = msgspec.field(default_factory=Webhooks)
    retention: Retention = msgspec.field(default_factory=Retention)
    cluster: Cluster = msgspec.field(default_factory=Cluster)

    @property
    def is_clustered(self) -> bool:
        """Whether other nodes may share the store."""
        return self.store.partition("://")[0] in ("postgresql", "postgres")


def parse(raw: Mapping[str, Any]) -> Config:
    """Check names, types, bounds and contradictions of an already merged tree."""
    _refuse_unknown(raw, Config, ())
    tree = dict(raw)
    for name, built_in in (("pools", {"default": {}}), ("tiers", DEFAULT_TIERS)):
        # What is no table is left to the conversion, which refuses it by name.
        if isinstance(given := tree.get(name, {}), Mapping):
            tree[name] = {**built_in, **given}
    try:
        config = msgspec.convert(tree, Config, strict=False)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`") or "configuration"
        raise InvalidRequest(f"Configuration: {field}: {message}.", field=field) from None
    pools = {name: _implied(pool, tree["pools"][name]) for name, pool in config.pools.items()}
    config = msgspec.structs.replace(config, pools=pools)
    if config.is_clustered and "host" not in tree.get("server", {}) and not is_loopback(host_of(config.store)):
        # Nodes on other machines have to reach this one.
        config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, host="0.0.0.0"))
    cross_check(config)
    return config


def _implied(pool: Pool, said: Container[str]) -> Pool:
    """The pool with those defaults that follow from its other settings, where nothing was said about them."""
    implied: dict[str, int] = {"max_pooled_per_key": min(pool.max_pooled_per_key, pool.max_pooled)}
    if pool.isolation == "browser":
        implied["sessions_per_browser"] = 1
    if pool.is_single or pool.isolation == "shared":
        implied["browsers_max"] = 1
    if pool.isolation == "shared":
        active = pool.max_active if "max_active" in said else min(SHARED_ACTIVE, pool.tabs_max or SHARED_ACTIVE)
        implied["max_active"] = active
        implied["max_active_per_key"] = min(SHARED_ACTIVE_PER_KEY, active or SHARED_ACTIVE_PER_KEY)
        # Pooled tabs have seats as well, and seats must not run out before the caps say so.
        seats = max(pool.sessions_per_browser, pool.tabs_max, active)
        implied["sessions_per_browser"] = min(seats, SESSIONS_PER_BROWSER_MAX)
    return msgspec.structs.replace(pool, **{key: value for key, value in implied.items() if key not in said})


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the server keeps its store, token and address: TABHERD_STATE, else the platform's user state directory."""
    if named := environ.get("TABHERD_STATE"):
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "tabherd"
    base = environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tabherd"


@cache
def _fields(section: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The type of each key. Looked up once: a running server reads its settings again and again."""
    return {field.name: field.type for field in msgspec.structs.fields(section)}


def _refuse_unknown(tree: Mapping[str, Any], section: type[msgspec.Struct], where: tuple[str, ...]) -> None:
    known = _fields(section)
    for key, value in tree.items():
        dotted = ".".join((*where, key))
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            nearest = ".".join((*where, close[0])) if close else None
            hint = f"; did you mean '{nearest}'?" if nearest else "."
            raise UnknownField(f"Configuration: unknown key '{dotted}'{hint}", field=dotted, nearest=nearest)
        if section is Config and key == "pools" and isinstance(value, dict):
            for name, pool in value.items():
                if isinstance(pool, dict):
                    _refuse_unknown(pool, Pool, ("pools", name))
        elif isinstance(value, dict) and isinstance(known[key], type) and issubclass(known[key], Section):
            _refuse_unknown(value, known[key], (*where, key))
