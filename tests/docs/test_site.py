"""The documentation becomes a site that stands alone: every link leads somewhere, and nothing comes from outside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright
from site_html import INDEX, build
from site_pages import SiteError, groups

from tabherd.browsers.find import find_browser

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[2]


class Built(HTMLParser):
    """What a built page has of anchors, links, and things that a browser loads by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        if "id" in found:
            assert found["id"] not in self.anchors, f"two elements are called {found['id']}"
            self.anchors.add(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        elif tag == "link":
            self.loaded.append(found["href"])
        elif "src" in found:
            self.loaded.append(found["src"])
        assert not any(name.startswith("on") or name == "style" for name in found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "below" / "a prefix"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "site.py"), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Built]:
    return {path: Built(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_of_the_documentation_is_built(pages: dict[Path, Built], site: Path) -> None:
    wanted = {site / page.target for group in groups() for page in group.pages}
    assert set(pages) == wanted
    assert {site / "index.html", site / "quickstart.html", site / "decisions" / "index.html"} <= wanted


def test_every_link_and_anchor_of_the_site_leads_somewhere(pages: dict[Path, Built], site: Path) -> None:
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme in ("http", "https")
                continue
            assert not parts.path.startswith("/"), f"{path}: {link} works at the root of a server only"
            found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert found in pages, f"{path.relative_to(site)}: {link}"
            if parts.fragment:
                assert parts.fragment in pages[found].anchors, f"{path.relative_to(site)}: {link}"


def test_nothing_is_loaded_from_outside(pages: dict[Path, Built], site: Path) -> None:
    for path, page in pages.items():
        for address in page.loaded:
            if address == "data:,":
                continue
            found = (path.parent / address).resolve()
            assert found.is_relative_to(site.resolve())
            assert found.is_file(), f"{path.relative_to(site)}: {address}"
    style = (site / "style.css").read_text()
    assert "url(" not in style
    assert "@import" not in style


def test_a_directory_that_is_no_site_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SiteError, match="no site"):
        build(ROOT, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_page_on_no_list_stops_the_build_and_leaves_the_last_site(tmp_path: Path, site: Path) -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).write_text("# Title\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Documentation\n\n## Start\n")
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    out = tmp_path / "site"
    out.mkdir()
    (out / INDEX).write_text("")
    with pytest.raises(SiteError, match=r"docs/lost\.md"):
        build(tmp_path, out)
    assert (out / INDEX).exists()


class Reader:
    """Somebody who reads the site in a real browser, from the disk."""

    def __init__(self, page: Page, site: Path) -> None:
        self.page = page
        self._site = site
        self.requested: list[str] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)

    async def open(self, name: str) -> None:
        await self.page.goto((self._site / name).as_uri())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(find_browser().path), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def reader(browser: Browser, site: Path) -> AsyncIterator[Reader]:
    """With a page in a context of its own."""
    page = await browser.new_page(viewport={"width": 360, "height": 740})
    try:
        reader = Reader(page, site)
        yield reader
        assert reader.problems == []
        assert [url for url in reader.requested if not url.startswith(("file:", "data:"))] == []
    finally:
        await page.close()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_search_finds_quarantine_and_leads_there(reader: Reader) -> None:
    await reader.open("how-to/commands.html")
    await reader.page.keyboard.press("/")
    await reader.page.keyboard.type("quarantine")
    await reader.page.locator("#found [role=option]").first.wait_for()
    found = await reader.page.locator("#found [role=option]").all_inner_texts()
    assert any("quarantine" in text.lower() for text in found)
    await reader.page.keyboard.press("Enter")
    await reader.page.wait_for_url("**/*.html#*")
    assert "quarantine" in (await reader.page.locator("main").inner_text()).lower()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_no_page_is_wider_than_a_phone(reader: Reader) -> None:
    for name in ("index.html", "operations.html", "reference/lifecycles.html", "reference/configuration.html"):
        await reader.open(name)
        assert await reader.page.evaluate("document.documentElement.scrollWidth") == 360, name
    await reader.page.get_by_role("link", name="Menu").click()
    await reader.page.get_by_role("link", name="Quickstart").click()
    assert await reader.page.title() == "Quickstart · tabherd"


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_the_text_of_every_diagram_stays_in_its_box(reader: Reader) -> None:
    for name in sorted((ROOT / "docs" / "reference" / "diagrams").glob("*.svg")):
        await reader.page.goto(name.as_uri())
        outside = await reader.page.evaluate("""() => {
            const boxes = [...document.querySelectorAll('rect.box')].map((rect) => rect.getBBox());
            const apart = (a, b) => a.x + a.width <= b.x || b.x + b.width <= a.x
                || a.y + a.height <= b.y || b.y + b.height <= a.y;
            const holds = (a, b) => a.x <= b.x && b.x + b.width <= a.x + a.width;
            return [...document.querySelectorAll('text')].filter((text) => {
                const area = text.getBBox();
                return text.classList.contains('state')
                    ? !boxes.some((box) => !apart(box, area) && holds(box, area))
                    : !boxes.every((box) => apart(box, area));
            }).map((text) => text.textContent);
        }""")
        assert outside == [], name.name
