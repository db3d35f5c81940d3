"""Every kind of command on every kind of hostile page ends, the tab comes back, and the others go on."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet

from . import pages
from .driving import KINDS, LIMIT_MS, Driver
from .site import HostileSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Those that are only in the way, and answer all the same.
USABLE = {**pages.SHADOWING, "debugger statements": "", "the whole screen": "", "prints": "", "closes itself": ""}
STUBBORN = {
    name
    for group in (pages.LARGE, pages.BUSY, pages.ASKING, pages.RESTLESS, pages.GREEDY, pages.FRAMED)
    for name in group
    if name not in USABLE
}
# Each keeps a command from its end in a way of its own; the others do it in one of these ways, and are for long runs.
TYPICAL = {
    *("100000 elements", "spins while it loads", "spins when it is clicked", "alerts in a timer"),
    *("asks whether it may be left", "replaces itself", "pushes states", "logs", "workers", "a frame that spins"),
    *("broken built-ins", "throwing getters", "debugger statements", "closes itself", "nothing ever"),
}


def sample(names: Iterable[str]) -> list[ParameterSet]:
    """All of them, of which those that are not typical are left to long runs."""
    return [pytest.param(name, marks=[] if name in TYPICAL else [pytest.mark.soak]) for name in sorted(names)]


# On a machine that is busy, too.
USABLE_LIMIT_MS = 50_000
SERVED_LIMIT_MS = 50_000


@pytest.mark.parametrize("name", sample(STUBBORN))
def test_every_command_on_a_page_that_resists_ends(tab: Driver, site: HostileSite, name: str) -> None:
    assert set(tab.everything(site.page(name), LIMIT_MS)) == {kind for kind, _ in KINDS}


@pytest.mark.parametrize("name", sample(USABLE))
def test_a_page_that_shadows_what_is_built_in_is_driven_like_any_other(
    tab: Driver, site: HostileSite, name: str
) -> None:
    assert set(tab.everything(site.page(name), USABLE_LIMIT_MS, USABLE_LIMIT_MS).values()) == {"completed"}


@pytest.mark.parametrize("kind", sample(pages.SERVED))
def test_a_service_worker_does_not_keep_a_tab(tab: Driver, site: HostileSite, kind: str) -> None:
    url = site.url(f"/served/{kind}/")
    assert tab.run("navigate", SERVED_LIMIT_MS, url=url) == "completed"
    assert tab.run("wait", SERVED_LIMIT_MS, function="document.title === 'Served'") == "completed"
    tab.everything(url, visit_ms=LIMIT_MS)
