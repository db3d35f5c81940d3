"""The settings that are in force, and who is told when they change.

What it keeps: they change as a whole, between two steps of the event loop, so nobody sees a mixture; what cannot
change while the server runs stays as it is, and is named as needing a restart; what is in force never contradicts
itself. Who needs a setting asks `current` each time, or subscribes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from ..config import Config, Pool, Section
from ..config_checks import cross_check
from ..config_layers import named_values
from ..errors import InvalidRequest

# Called with what was in force and what is.
Subscriber: TypeAlias = Callable[[Config, Config], None]

# By section ("" is the top level), the keys that are read once, at the start. Everything else follows a reload. The
# column of the reference page is made from this table.
NEEDS_RESTART: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"store"}),
    "server": frozenset({"host", "port", "events_ring", "log_format", "log_level"}),
    "auth": frozenset({"enabled"}),
    "locks": frozenset({"url", "max_connections", "keepalive_s"}),
    "cluster": frozenset({"url", "beat_s", "pause_after_s", "dead_after_s", "direct_url"}),
    # What a browser was started with.
    "pools": frozenset(
        {
            "source",
            "endpoint",
            "browser",
            "headless",
            "flags",
            "start_limit_ms",
            "isolation",
            "profile_dir",
            "allow_hosts",
            "deny_hosts",
            "deny_private_networks",
            "pinned_hosts",
        }
    ),
}


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What other settings would change, by dotted names, sorted."""

    # In force from now on.
    changed: tuple[str, ...] = ()
    # Waits for a restart.
    needs_restart: tuple[str, ...] = ()


class Settings:
    """The settings of one server."""

    def __init__(self, config: Config) -> None:
        self._current = config
        # What would be in force after a restart.
        self._wanted = config
        self._subscribers: list[Subscriber] = []

    @property
    def current(self) -> Config:
        """What is in force now."""
        return self._current

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """What waits for a restart, by dotted names."""
        return _differing(self._current, self._wanted)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have it called, in the event loop, whenever something that is in force has changed."""
        self._subscribers.append(subscriber)

    def apply(self, new: Config) -> Changes:
        """Put the new settings in force, as far as that goes without a restart, and tell who subscribed."""
        old, self._wanted = self._current, new
        self._current = _applicable(old, new)
        changes = Changes(changed=_differing(old, self._current), needs_restart=self.needs_restart)
        if changes.changed:
            for subscriber in self._subscribers:
                subscriber(old, self._current)
        return changes


def _applicable(old: Config, new: Config) -> Config:
    """The new settings, with the old value wherever that cannot change now."""
    fixed = {name: getattr(old, name) for name in NEEDS_RESTART[""]}
    for name in ("server", "auth", "locks", "cluster"):
        section: Section = getattr(old, name)
        fixed[name] = replace(getattr(new, name), **{key: getattr(section, key) for key in NEEDS_RESTART[name]})
    pools = {name: _applicable_pool(pool, new.pools.get(name)) for name, pool in old.pools.items()}
    config = replace(new, pools=pools, **fixed)
    try:
        cross_check(config)
    except InvalidRequest:
        # Pools that may change now and pools that may not do not fit together: then all of them wait.
        return replace(config, pools=old.pools)
    return config


def _applicable_pool(old: Pool, new: Pool | None) -> Pool:
    """A pool is made of settings that depend on each other: where one of them has to wait, all of them do."""
    if new is None or any(getattr(old, key) != getattr(new, key) for key in NEEDS_RESTART["pools"]):
        return old
    return new


def _differing(old: Config, new: Config) -> tuple[str, ...]:
    before, after = (named_values(msgspec.to_builtins(each)) for each in (old, new))
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    # A pool that comes or goes is one change, not forty.
    moved = {f"pools.{name}" for name in old.pools.keys() ^ new.pools.keys()}
    return tuple(sorted(moved | {name for name in names if name.rpartition(".")[0] not in moved}))
