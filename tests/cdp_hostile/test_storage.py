"""Cookies, caches, databases and workers: an attacker at the victim's own origin empties its own, and no other's."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Scene
from .hostile import Shot

pytestmark = [pytest.mark.server, pytest.mark.browser]

KEPT = """(async () => [document.cookie, Object.keys(localStorage), await caches.keys(),
  (await indexedDB.databases()).map(each => each.name), (await navigator.serviceWorker.getRegistrations()).length])()"""
PAGE_KINDS = ("page", "iframe", "worker", "service_worker")


def looks(scene: Scene) -> list[tuple[str, dict[str, Any]]]:
    """Everything that tells what is kept."""
    key, origin = {"storageKey": f"{scene.site.origin}/"}, {"origin": scene.site.origin}
    store = {"objectStoreName": scene.victim.mark, "databaseName": scene.victim.mark}
    return [
        ("Storage.getCookies", {}),
        ("Network.getAllCookies", {}),
        ("Network.getCookies", {"urls": [scene.site.origin]}),
        ("Storage.getUsageAndQuota", origin),
        ("Storage.trackCacheStorageForStorageKey", key),
        ("Storage.trackIndexedDBForStorageKey", key),
        ("CacheStorage.requestCacheNames", key),
        ("CacheStorage.requestEntries", {"cacheId": f"{scene.site.origin}/|{scene.victim.mark}", "skipCount": 0}),
        ("IndexedDB.requestDatabaseNames", key),
        ("IndexedDB.requestData", {**key, **store, "indexName": "", "skipCount": 0, "pageSize": 9}),
        ("DOMStorage.getDOMStorageItems", {"storageId": {**key, "isLocalStorage": True}}),
        ("ServiceWorker.enable", {}),
        ("BackgroundService.startObserving", {"service": "backgroundFetch"}),
        ("FileSystem.getDirectory", {"bucketFileSystemLocator": {**key, "pathComponents": []}}),
    ]


def clears(scene: Scene) -> list[tuple[str, dict[str, Any]]]:
    """Everything that empties what is kept."""
    key = {"storageKey": f"{scene.site.origin}/"}
    scope = {"scopeURL": f"{scene.site.origin}/{scene.victim.mark}/"}
    return [
        ("ServiceWorker.unregister", scope),
        ("ServiceWorker.stopAllWorkers", {}),
        ("ServiceWorker.updateRegistration", scope),
        ("IndexedDB.deleteDatabase", {**key, "databaseName": scene.victim.mark}),
        ("CacheStorage.deleteCache", {"cacheId": f"{scene.site.origin}/|{scene.victim.mark}"}),
        ("DOMStorage.clear", {"storageId": {**key, "isLocalStorage": True}}),
        ("DOMStorage.clear", {"storageId": {**key, "isLocalStorage": False}}),
        ("Storage.deleteStorageBucket", {"bucket": {**key, "name": "default"}}),
        ("Network.deleteCookies", {"name": "script", "url": scene.site.origin}),
        ("Network.setCookie", {"name": "script", "value": "mine", "url": scene.site.origin}),
        ("BackgroundService.clearEvents", {"service": "backgroundFetch"}),
        ("Storage.clearTrustTokens", {"issuerOrigin": scene.site.origin}),
        ("Storage.overrideQuotaForOrigin", {"origin": scene.site.origin, "quotaSize": 1}),
        ("Network.clearBrowserCache", {}),
        ("Network.clearBrowserCookies", {}),
        ("Storage.clearCookies", {}),
        ("Storage.clearDataForOrigin", {"origin": scene.site.origin, "storageTypes": "all"}),
        ("Storage.clearDataForStorageKey", {**key, "storageTypes": "all"}),
    ]


async def test_what_the_victim_keeps_is_not_told_and_what_is_emptied_is_the_attackers_own(scene: Scene) -> None:
    sessions = [scene.sessions.by_kind[kind] for kind in ("root", *PAGE_KINDS)]
    for commands in (looks(scene), clears(scene)):
        await scene.attacker.volley(
            Shot(method, params, session_id) for session_id in sessions for method, params in commands
        )
    assert await scene.attacker.value(KEPT, scene.page) == ["", [], [], [], 0]
