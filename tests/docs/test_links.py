"""Every link in the documentation leads somewhere, and every page can be reached from the README."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links(page: Path) -> Iterator[str]:
    """The targets on this page that lie in this repository."""
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if not target.startswith(("http://", "https://")):
            yield target


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for target in links(page):
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), f"{page}: {target} does not exist"
            if anchor:
                assert anchor in anchors(found), f"{page}: {target}: no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    frontier = list(reached)
    while frontier:
        page = frontier.pop()
        for target in links(page):
            found = (page.parent / target.partition("#")[0]).resolve()
            if found.suffix == ".md" and found not in reached:
                reached.add(found)
                frontier.append(found)
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []
