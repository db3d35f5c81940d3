"""The tables of methods against the protocol of the installed browsers: what a new version brings is noticed here."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.browsers.real import launched
from tests.browsers.site import BUILDS

from tabherd.edge.cdp import methods
from tabherd.edge.cdp.rules import Kind, Rule, rule_for

from .owner import CONTEXTS

# One table for each thing that can be decided about a method in the session of a page.
TABLES = {
    "EMULATED": methods.EMULATED,
    "CHECKED": methods.CHECKED,
    "CHECKED_FOR_OTHERS": methods.CHECKED_FOR_OTHERS,
    "CHECKED_FOR_SELECTION": methods.CHECKED_FOR_SELECTION,
    "CHECKED_ALONE": methods.CHECKED_ALONE,
    "OF_BROWSER": methods.OF_BROWSER,
    "DENIED": methods.DENIED,
    "PASSED": methods.PASSED,
}
DECIDED_DOMAINS = methods.DENIED_DOMAINS | methods.OF_BROWSER_DOMAINS
# Denied though these browsers do not have them any more.
OLDER = {"Page.handleFileChooser", "Network.continueInterceptedRequest", "Network.setRequestInterception"}

# Parameters that could name what is not the client's own.
NAMING = re.compile(r"url|uri|path|files?$|origin|targetid|browsercontext|windowid|guid|directory", re.IGNORECASE)
# Those of methods that pass, by the reason why nothing has to be checked.
HARMLESS = {
    "compared with addresses of the page's own requests, scripts and resources": (
        *("DOMDebugger.*XHRBreakpoint.url", "Debugger.setBreakpointByUrl.url", "Debugger.setBreakpointByUrl.urlRegex"),
        *("Fetch.enable.patterns.urlPattern", "Network.setBlockedURLs.*", "Page.getResourceContent.url"),
        *("Network.emulateNetworkConditionsByRule.*.urlPattern", "Page.searchInResource.url"),
        *(
            "Page.produceCompilationCache.scripts.url",
            "Page.addCompilationCache.url",
            "Runtime.compileScript.sourceURL",
        ),
    ),
    "names cookies, caches, databases and workers of the page's own context": (
        *("Network.getCookies.urls", "Network.setCookie.url", "Network.setCookie.path", "Network.deleteCookies.url"),
        *("Network.deleteCookies.path", "Network.setCookies.cookies.url", "Network.setCookies.cookies.path"),
        *("Page.deleteCookie.url", "CacheStorage.requestCacheNames.securityOrigin", "IndexedDB.*.securityOrigin"),
        *("CacheStorage.requestCachedResponse.requestURL", "CacheStorage.requestEntries.pathFilter"),
        *("DOMStorage.*.storageId.securityOrigin", "Storage.*ForOrigin.origin", "Storage.getUsageAndQuota.origin"),
        *("Storage.clearTrustTokens.issuerOrigin", "Storage.clearPrivateVerificationTokens.issuerOrigin"),
        *("ServiceWorker.*.scopeURL", "ServiceWorker.*.origin", "FileSystem.getDirectory.*.pathComponents"),
        *("Network.getCertificate.origin",),
    ),
    "no name of anything": (
        *("DOM.pushNodeByPathToFrontend.path", "FedCm.openUrl.accountUrlType", "Network.fetchSchemefulSite.origin"),
        *("Page.createIsolatedWorld.contentSecurityPolicy",),
    ),
}

Protocol = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BUILDS)
async def protocol(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Protocol]:
    async with (
        launched(tmp_path_factory.mktemp("profiles"), browser=request.param) as browser,
        httpx.AsyncClient(timeout=60) as http,
    ):
        yield (await http.get(f"http://127.0.0.1:{browser.row.port}/json/protocol")).json()


def commands(protocol: Protocol) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for domain in protocol["domains"]:
        for command in domain.get("commands", ()):
            yield f"{domain['domain']}.{command['name']}", command.get("parameters", [])


def names_within(protocol: Protocol, method: str, parameters: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The parameters of a method and all that is in them, as dotted paths."""
    types = {
        f"{domain['domain']}.{kind['id']}": kind for domain in protocol["domains"] for kind in domain.get("types", ())
    }

    def of_all(domain: str, specs: Iterable[dict[str, Any]], prefix: str, seen: frozenset[str]) -> Iterator[str]:
        for spec in specs:
            yield f"{prefix}.{spec['name']}"
            yield from of_one(domain, spec, f"{prefix}.{spec['name']}", seen)

    def of_one(domain: str, spec: dict[str, Any], name: str, seen: frozenset[str]) -> Iterator[str]:
        if (ref := spec.get("$ref")) is not None:
            full = ref if "." in ref else f"{domain}.{ref}"
            # Types may be recursive.
            if full not in seen:
                yield from of_one(full.partition(".")[0], types[full], name, seen | {full})
        elif "items" in spec:
            yield from of_one(domain, spec["items"], name, seen)
        else:
            yield from of_all(domain, spec.get("properties", ()), name, seen)

    return of_all(method.partition(".")[0], parameters, method, frozenset())


def test_no_method_is_in_two_tables() -> None:
    assert {
        (one, other): TABLES[one] & TABLES[other]
        for one, other in combinations(TABLES, 2)
        if TABLES[one] & TABLES[other]
    } == {}


def test_no_method_is_listed_in_a_domain_that_is_decided_as_a_whole() -> None:
    assert {
        method for table in TABLES.values() for method in table if method.partition(".")[0] in DECIDED_DOMAINS
    } == set()


@pytest.mark.browser
def test_every_method_of_the_installed_browser_has_been_decided_about(protocol: Protocol) -> None:
    known = frozenset().union(*TABLES.values())
    undecided = {
        method
        for method, _ in commands(protocol)
        if method not in known and method.partition(".")[0] not in DECIDED_DOMAINS
    }
    assert undecided == set(), "look at what these reach, then put each into a table of edge/cdp/methods.py"


@pytest.mark.browser
def test_every_listed_method_exists(protocol: Protocol) -> None:
    listed = frozenset().union(
        *TABLES.values(), methods.OF_ROOT, methods.OF_TAB, methods.EMULATED_AT_ROOT, methods.ANSWERS
    )
    assert listed - OLDER <= {method for method, _ in commands(protocol)}


@pytest.mark.browser
def test_every_parameter_that_could_name_what_is_not_the_clients_has_been_decided_about(protocol: Protocol) -> None:
    harmless = [pattern for patterns in HARMLESS.values() for pattern in patterns]
    undecided = {
        name
        for method, parameters in commands(protocol)
        if rule_for(Kind.PAGE, method, CONTEXTS) is Rule.PASS
        for name in names_within(protocol, method, parameters)
        if NAMING.search(name.rpartition(".")[2]) and not any(fnmatchcase(name, pattern) for pattern in harmless)
    }
    assert undecided == set(), "check them in edge/cdp, or say here why they are harmless"


@pytest.mark.browser
@pytest.mark.parametrize("kind", [Kind.ROOT, Kind.TAB])
def test_nothing_passes_unchecked_in_the_browsers_session_that_names_anything(protocol: Protocol, kind: Kind) -> None:
    naming = {
        name
        for method, parameters in commands(protocol)
        if rule_for(kind, method, CONTEXTS) is Rule.PASS
        for name in names_within(protocol, method, parameters)
        # Handles of streams are the connection's own.
        if not name.startswith("IO.")
    }
    assert naming == set()
