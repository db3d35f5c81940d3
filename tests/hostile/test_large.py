"""However much a page has, what it answers is bounded, and so is what that costs the others."""

from __future__ import annotations

import httpx
import pytest

from .driving import Driver
from .site import HostileSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Making such strings takes a while.
LIMIT_MS = 50_000


def refusal(answer: httpx.Response) -> tuple[str, str]:
    body = answer.json()
    return body["code"], body["details"]["reason"]


@pytest.mark.parametrize(
    "expression",
    ["'x'.repeat(3e8)", "Promise.resolve(['x'.repeat(1e8)])", "Array(3e6).fill('a string')"],
)
def test_a_value_that_is_too_large_is_refused(tab: Driver, expression: str) -> None:
    answer = tab.ask("evaluate", LIMIT_MS, expression=expression)
    assert refusal(answer) == ("javascript_error", "too_large")


def test_a_page_that_is_too_large_to_be_read_is_refused_and_what_is_told_of_it_is_short(
    tab: Driver, site: HostileSite
) -> None:
    reached = tab.ask("navigate", LIMIT_MS, url=site.page("12 MB of text"))
    assert len(reached.json()["result"]["title"]) <= 5_000
    for kind in ("text", "html"):
        assert refusal(tab.ask(kind, LIMIT_MS, selector="pre")) == ("conflict", "too_large")
        assert tab.run(kind, LIMIT_MS, selector="#text") == "completed"
    assert refusal(tab.ask("html", LIMIT_MS)) == ("conflict", "too_large")
    assert len(tab.ask("snapshot", LIMIT_MS).json()["result"]) <= 70_000


def test_of_20000_buttons_of_one_name_a_few_are_told(tab: Driver, site: HostileSite) -> None:
    tab.run("navigate", LIMIT_MS, url=site.page("20000 buttons of one name"))
    ambiguous = tab.ask("click", LIMIT_MS, selector="text=Go").json()
    assert (ambiguous["code"], ambiguous["details"]["count"]) == ("ambiguous_target", 20_000)
    assert len(ambiguous["details"]["candidates"]) <= 10
