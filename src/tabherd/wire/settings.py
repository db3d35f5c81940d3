"""The settings of a server, as operators see and change them; their names are those of the configuration file."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from .base import Answer, Request


class ConfigPatch(Request, frozen=True, kw_only=True):
    """What to change in the configuration file, shaped like it. Tables are merged; null removes a key."""

    store: str | UnsetType | None = UNSET
    server: dict[str, Any] | UnsetType | None = UNSET
    auth: dict[str, Any] | UnsetType | None = UNSET
    # By name.
    pools: dict[str, dict[str, Any] | None] | UnsetType | None = UNSET
    # By name, in seconds.
    tiers: dict[str, Any] | UnsetType | None = UNSET
    gate: dict[str, Any] | UnsetType | None = UNSET
    # Zero keeps a limit or lifetime as it is; the same in retention.
    scheduler: dict[str, Any] | UnsetType | None = UNSET
    locks: dict[str, Any] | UnsetType | None = UNSET
    webhooks: dict[str, Any] | UnsetType | None = UNSET
    retention: dict[str, Any] | UnsetType | None = UNSET
    cluster: dict[str, Any] | UnsetType | None = UNSET


class ConfigChanges(Answer, frozen=True, kw_only=True):
    """What came of it, by dotted names."""

    # In force now.
    changed: list[str]
    # In the file, but not in force before the server is started again.
    needs_restart: list[str]


class ConfigView(Answer, frozen=True, kw_only=True):
    # What is in force, shaped like the configuration file; secrets are masked.
    settings: dict[str, Any]
    # By dotted name: default, file, environment, flag; kept: in force since before the file stopped saying it.
    sources: dict[str, str]
    # The configuration file; null when the server has none.
    file: str | None
    # What the file says that is not in force before the server is started again.
    needs_restart: list[str] = msgspec.field(default_factory=list)
    # Why the file as it is now was refused; null when it was not.
    refused: str | None = None
