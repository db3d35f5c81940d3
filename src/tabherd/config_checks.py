"""Settings that contradict each other, although each is within its bounds.

What is refused here would otherwise be found out by a browser that does not start, or by somebody who should not have
got in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from .egress.policy import Rules, read_pinned
from .errors import InvalidRequest

if TYPE_CHECKING:
    from .config import Cluster, Config, Pool

# How many browsers can be launched on one machine: each needs a debug port that pages cannot reach.
DEBUG_PORTS = 17
# Flags that would lead a browser around the proxy of its pool's network policy.
PROXY_FLAGS = ("--proxy-", "--no-proxy-server", "--host-rules", "--host-resolver-rules", "--winhttp-proxy-resolver")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    return host in ("localhost", "::1") or host.startswith("127.")


def host_of(url: str) -> str:
    """The machine that an address of a database names; this one, if it names none or a directory of sockets."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or dict(parse_qsl(parts.query)).get("host", "")
    except ValueError:
        # Whoever opens it says what is wrong with it.
        host = ""
    return "localhost" if not host or host.startswith("/") else host


def cross_check(config: Config) -> None:
    """Raise `InvalidRequest`, naming the key, if two settings contradict each other."""
    if not config.auth.enabled and not is_loopback(config.server.host):
        raise InvalidRequest(
            f"Refusing to listen on {config.server.host} without auth: whoever reaches it could drive your browsers.",
            action="Remove --no-auth, or listen on 127.0.0.1.",
            field="auth.enabled",
        )
    if config.gate.timeout_floor_ms > config.gate.timeout_ms:
        raise InvalidRequest("gate.timeout_floor_ms is above gate.timeout_ms.", field="gate.timeout_floor_ms")
    if config.auth.rate_burst < config.auth.rate_per_s:
        raise InvalidRequest("auth.rate_burst is below auth.rate_per_s.", field="auth.rate_burst")
    try:
        Rules(config.webhooks.allow_hosts)
    except ValueError as error:
        raise InvalidRequest(f"webhooks.allow_hosts: {error}.", field="webhooks.allow_hosts") from None
    scheme = config.store.partition("://")[0]
    if config.store and scheme not in ("sqlite", "memory", "postgresql", "postgres"):
        raise InvalidRequest(
            f"store: '{scheme}' is not a store there is; use sqlite:///path or postgresql://user@host/database.",
            field="store",
        )
    _cross_check_cluster(config.cluster)
    if config.is_clustered and config.locks.url.startswith("file:"):
        raise InvalidRequest(
            "locks.url: files of one machine are no locks for several; nodes on PostgreSQL keep their locks there.",
            action="Remove locks.url, or name a PostgreSQL.",
            field="locks.url",
        )
    for name, pool in config.pools.items():
        _cross_check_pool(name, pool)
    _cross_check_pools(config.pools)


def _cross_check_cluster(cluster: Cluster) -> None:
    if not 2 * cluster.beat_s < cluster.pause_after_s < cluster.dead_after_s:
        raise InvalidRequest(
            "cluster.pause_after_s has to be above two beats (beat_s) and below dead_after_s: a node distrusts itself "
            "before others may act.",
            field="cluster.pause_after_s",
        )
    if cluster.url:
        try:
            address = urlsplit(cluster.url)
            is_address = address.scheme == "http" and bool(address.hostname) and address.port != 0
        except ValueError:
            is_address = False
        if not is_address or address.path.strip("/") or address.query:
            raise InvalidRequest(
                f"cluster.url: '{cluster.url}' is not the address of a node; use http://host:port.", field="cluster.url"
            )


def _cross_check_pool(name: str, pool: Pool) -> None:
    def refuse(key: str, message: str, action: str = "") -> None:
        raise InvalidRequest(f"pools.{name}.{key}: {message}", action=action or None, field=f"pools.{name}.{key}")

    if pool.max_active and max(pool.max_active_per_key, pool.max_active_per_agent) > pool.max_active:
        refuse("max_active", f"a cap per key or agent is above max_active, which is {pool.max_active}.")
    if pool.max_pooled_per_key > pool.max_pooled:
        refuse("max_pooled_per_key", f"{pool.max_pooled_per_key} is above max_pooled, which is {pool.max_pooled}.")
    if pool.tabs_max and pool.tabs_max < pool.max_active:
        refuse("max_tabs", f"{pool.tabs_max} is below max_active, which is {pool.max_active}: each session has a tab.")
    if pool.stale_after_s < 2 * pool.heartbeat_s:
        refuse(
            "stale_after_s",
            f"{pool.stale_after_s} is less than two beats of heartbeat_s, which is {pool.heartbeat_s}: one that is "
            "late would end the session.",
        )
    if pool.browsers_min > pool.browsers_max:
        refuse("browsers_min", f"{pool.browsers_min} is above browsers_max, which is {pool.browsers_max}.")
    if pool.isolation == "browser" and pool.sessions_per_browser != 1:
        refuse("sessions_per_browser", "with isolation browser each session has a browser to itself.", "Remove it.")
    if pool.is_single and pool.browsers_max != 1:
        refuse("browsers_max", "with source attach or a profile_dir there is only one browser.", "Remove it.")
    if pool.source == "launch" and pool.endpoint:
        refuse("endpoint", "only a pool with source attach has an endpoint.", f"Set pools.{name}.source to attach.")
    if pool.source == "attach":
        _cross_check_attach(pool, refuse)
    _cross_check_network(pool, refuse)
    if pool.profile_dir:
        if pool.source != "launch" or pool.isolation != "shared":
            refuse("profile_dir", "only a launched pool with isolation shared keeps a profile.")
        if not Path(pool.profile_dir).expanduser().is_absolute():
            refuse("profile_dir", f"{pool.profile_dir} is relative.", "Give the whole path.")


def _cross_check_attach(pool: Pool, refuse: Callable[[str, str], None]) -> None:
    if pool.isolation == "browser":
        refuse("isolation", "a browser that runs already cannot be one per session.")
    try:
        address = urlsplit(pool.endpoint)
        is_address = address.scheme in ("http", "ws") and bool(address.hostname) and address.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        refuse("endpoint", f"source attach needs http://host:port or ws://host:port/path, not '{pool.endpoint}'.")


def _cross_check_network(pool: Pool, refuse: Callable[[str, str], None]) -> None:
    for key in ("allow_hosts", "deny_hosts"):
        try:
            Rules(getattr(pool, key))
        except ValueError as error:
            refuse(key, f"{error}.")
    try:
        read_pinned(pool.pinned_hosts)
    except ValueError as error:
        refuse("pinned_hosts", f"{error}.")
    if not pool.has_network_policy:
        return
    if around := [flag for flag in pool.flags if flag.startswith(PROXY_FLAGS)]:
        refuse("flags", f"{around[0]} would lead around the pool's network policy.")
    if pool.source == "attach" and pool.isolation == "shared":
        refuse(
            "isolation",
            "a network policy cannot be kept in an attached browser's own profile, which is not tabherd's to set up. "
            "Use isolation context, or remove the policy.",
        )
    if pool.source == "attach" and not is_loopback(urlsplit(pool.endpoint).hostname or ""):
        refuse("endpoint", "a network policy is kept by a proxy on this machine, which a browser elsewhere cannot use.")


def _cross_check_pools(pools: Mapping[str, Pool]) -> None:
    kept: dict[Path, str] = {}
    for name, pool in pools.items():
        if pool.profile_dir:
            directory = Path(pool.profile_dir).expanduser().resolve()
            if (other := kept.setdefault(directory, name)) != name:
                raise InvalidRequest(
                    f"pools.{name}.profile_dir: pool '{other}' has the same one, and it serves one browser only.",
                    field=f"pools.{name}.profile_dir",
                )
    launched = {name: pool.browsers_max for name, pool in pools.items() if pool.source == "launch"}
    if sum(launched.values()) > DEBUG_PORTS:
        raise InvalidRequest(
            f"The pools may launch {sum(launched.values())} browsers together "
            f"({', '.join(f'{name}: {count}' for name, count in launched.items())}), but there are only {DEBUG_PORTS} "
            "ports on which a browser can be driven without its pages reaching them.",
            action="Lower browsers_max, and raise sessions_per_browser if more sessions are wanted.",
            field=f"pools.{max(launched, key=lambda name: launched[name])}.browsers_max",
        )
