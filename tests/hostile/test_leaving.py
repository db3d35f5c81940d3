"""Leaving hostile pages, and being left by them: closing, history, and what a command that never arrived has to say."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from .driving import Driver
from .site import HostileSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

# On a machine that is busy, too.
LIMIT_MS = 50_000
# How often something is looked for, every twentieth of a second.
TRIES = 1_200


def eventually(is_so: Callable[[], object]) -> bool:
    """Whether it becomes true: a server hears of some things only when the browser tells."""
    for _ in range(TRIES):
        if is_so():
            return True
        time.sleep(0.05)
    return False


def test_a_tab_is_closed_whatever_its_page_does(tab: Driver, site: HostileSite) -> None:
    for name in ("spins when it is left", "asks whether it may be left", "alerts for ever", "floods of microtasks"):
        other = tab.another()
        other.visit(site.page(name))
        assert other.run("close", LIMIT_MS) == "completed", name
        assert not other.is_there(), name


def test_a_page_that_closes_itself_ends_the_command_that_is_at_work_in_it(tab: Driver, site: HostileSite) -> None:
    assert tab.run("navigate", LIMIT_MS, url=site.url("/plain")) == "completed"
    assert tab.run("evaluate", LIMIT_MS, expression="void open('/plain')") == "completed"
    assert eventually(tab.others)
    (popup,) = tab.others()
    ended = popup.ask("evaluate", LIMIT_MS, expression="close(); new Promise(() => {})")
    assert ended.json()["code"] == "outcome_unknown", ended.text
    assert eventually(lambda: not popup.is_there())


def test_moves_through_the_history_of_a_restless_page_end(tab: Driver, site: HostileSite) -> None:
    for kind, name in (("back", "pushes states"), ("forward", "changes its hash"), ("reload", "pushes states")):
        tab.visit(site.page(name))
        tab.run(kind)
    assert tab.is_there()


def test_a_page_that_never_rests_says_what_it_is_loading(tab: Driver, site: HostileSite) -> None:
    # What the answer is about takes its time on a machine that is busy.
    for limit_ms in (1_500, 6_000, 24_000):
        busy = tab.ask("navigate", limit_ms, url=site.page("fetches"), waitUntil="networkidle").json()
        assert busy["code"] == "command_timed_out", busy
        if "load" in busy["details"].get("reached", ()):
            break
    assert busy["details"]["waitingFor"] == "networkidle"
    assert any("/plain?" in url for url in busy["details"]["loading"])
