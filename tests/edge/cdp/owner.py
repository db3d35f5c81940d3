"""A client with a few things of its own, beside another whose things it must not reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabherd.edge.cdp.rules import Forward, Kind, Refuse, Rule, Tenancy, check, rule_for

CONTEXTS = Tenancy(is_shared=False, is_alone=False)
SHARED = Tenancy(is_shared=True, is_alone=False)
ALONE = Tenancy(is_shared=False, is_alone=True)
ATTACHED = Tenancy(is_shared=False, is_alone=False, shares_selection=True)
TENANCIES = (CONTEXTS, SHARED, ALONE, ATTACHED)
WORKERS = (Kind.WORKER, Kind.SERVICE_WORKER)

# The client's own.
CONTEXT = "C0" * 16
MADE_CONTEXT = "C1" * 16
TARGET = "70" * 16
WINDOW = 7
DOWNLOAD = "own-download"
FILE = "/sessions/own/upload.txt"
DOWNLOADS = "/sessions/own/downloads"
# Somebody else's.
FOREIGN = "EE" * 16
FOREIGN_WINDOW = 13


class Client:
    """An `Owner` whose facts a test may change."""

    def __init__(self, tenancy: Tenancy = CONTEXTS) -> None:
        self.context_id = "" if tenancy.is_shared else CONTEXT
        self.download_dir = DOWNLOADS
        self.proxy: Mapping[str, str] = {}
        self.contexts_left = 1
        self.targets_left = 1
        self.crashes_left = 1
        # Paths it was asked about.
        self.asked: list[str] = []

    def owns_context(self, context_id: str) -> bool:
        return bool(self.context_id) and context_id in (CONTEXT, MADE_CONTEXT)

    def owns_target(self, target_id: str) -> bool:
        return target_id == TARGET

    def owns_window(self, window_id: int) -> bool:
        return window_id == WINDOW

    def owns_download(self, guid: str) -> bool:
        return guid == DOWNLOAD

    def may_read(self, path: str) -> bool:
        self.asked.append(path)
        return path == FILE

    def may_crash(self) -> bool:
        self.crashes_left -= 1
        return self.crashes_left >= 0


def forwarded(
    method: str,
    params: dict[str, Any],
    kind: Kind = Kind.ROOT,
    client: Client | None = None,
    tenancy: Tenancy = CONTEXTS,
) -> dict[str, Any]:
    """What Chromium gets."""
    assert rule_for(kind, method, tenancy) is Rule.CHECK
    verdict = check(kind, method, params, client or Client(tenancy), tenancy)
    assert isinstance(verdict, Forward), verdict
    return verdict.params


def refused(
    method: str,
    params: dict[str, Any],
    kind: Kind = Kind.ROOT,
    client: Client | None = None,
    tenancy: Tenancy = CONTEXTS,
) -> Refuse:
    """What the client gets instead."""
    assert rule_for(kind, method, tenancy) is Rule.CHECK
    verdict = check(kind, method, params, client or Client(tenancy), tenancy)
    assert isinstance(verdict, Refuse), verdict
    return verdict
