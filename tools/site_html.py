"""Puts rendered pages into the frame that they share, and writes the site: pages, pictures, style, script, index.

Every address in it is relative, so it works from a disk, from the root of a server and from any path below it. It
loads nothing from anywhere else.
"""

from __future__ import annotations

import json
import posixpath
import shutil
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from site_markdown import Rendered, picture_target, render
from site_pages import Group, Page, SiteError, groups

ASSETS = Path(__file__).parent / "site_assets"
INDEX = "search-index.js"
# A section has more words than anybody searches for; the index stays small enough to load at the first key.
INDEXED_MAX = 4_000
# A group of the navigation that has no more pages than this is open on every page.
OPEN_MAX = 5

_FRAME = """<!doctype html>
<html lang="en" data-root="{root}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}style.css">
<script src="{root}page.js" defer></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
<a class="brand" href="{root}index.html">tabherd</a>
<a class="menu" href="#menu">Menu</a>
<div class="search" role="search">
<input id="search" type="search" placeholder="Search ( / )" aria-label="Search the documentation" autocomplete="off"
 role="combobox" aria-expanded="false" aria-controls="found" aria-autocomplete="list">
<ol id="found" role="listbox" aria-label="Found" hidden></ol>
</div>
</header>
<nav id="menu" aria-label="Pages"><a class="close" href="#content">Close</a>
{navigation}
</nav>
<main id="content">
{body}
<footer>{neighbours}</footer>
</main>
{outline}
</body>
</html>
"""


def build(root: Path, out: Path) -> int:
    """Write the whole site; what an earlier build left there is replaced. Answers with the number of pages."""
    if out.exists() and any(out.iterdir()) and not (out / INDEX).exists():
        raise SiteError(f"{out} is no site that was built here; name an empty directory, or one that is not there.")
    navigation = groups(root)
    pages = [page for group in navigation for page in group.pages]
    targets = {page.source: page.target for page in pages}
    rendered = {
        page.source: render(page.source, (root / page.source).read_text(encoding="utf-8"), targets) for page in pages
    }
    # Only now is anything removed: pages that do not fit together leave the last site as it is.
    shutil.rmtree(out, ignore_errors=True)
    for at, page in enumerate(pages):
        around = (pages[at - 1] if at else None, pages[at + 1] if at + 1 < len(pages) else None)
        _write(out / page.target, _framed(page, rendered[page.source], navigation, around))
    for picture in sorted({picture for each in rendered.values() for picture in each.pictures}):
        if not (root / picture).is_file():
            raise SiteError(f"{picture} is shown on a page, but not there.")
        _write(out / picture_target(picture), (root / picture).read_bytes())
    for asset in sorted(ASSETS.iterdir()):
        _write(out / asset.name, asset.read_bytes())
    _write(out / INDEX, _index(pages, rendered))
    return len(pages)


def _framed(
    page: Page, rendered: Rendered, navigation: Sequence[Group], around: tuple[Page | None, Page | None]
) -> str:
    title = rendered.title if rendered.title == "tabherd" else f"{rendered.title} · tabherd"
    return _FRAME.format(
        root="../" * page.target.count("/"),
        title=escape(title),
        navigation="\n".join(_navigation(page, navigation)),
        body=rendered.html,
        neighbours="".join(_neighbours(page, around)),
        outline=_outline(rendered),
    )


def _navigation(here: Page, navigation: Sequence[Group]) -> Iterator[str]:
    for group in navigation:
        if not group.pages:
            yield f'<p class="kind">{escape(group.title)}</p>'
            continue
        is_open = here in group.pages or len(group.pages) <= OPEN_MAX
        kind = "sub" if group.level == 3 else "top"
        yield f'<details class="{kind}"{" open" if is_open else ""}><summary>{escape(group.title)}</summary><ul>'
        for page in group.pages:
            mark = ' aria-current="page"' if page == here else ""
            yield f'<li><a href="{_way(here, page)}"{mark}>{escape(page.name)}</a></li>'
        yield "</ul></details>"


def _neighbours(here: Page, around: tuple[Page | None, Page | None]) -> Iterator[str]:
    before, after = around
    if before is not None:
        yield f'<a rel="prev" href="{_way(here, before)}">← {escape(before.name)}</a>'
    if after is not None:
        yield f'<a rel="next" href="{_way(here, after)}">{escape(after.name)} →</a>'


def _outline(rendered: Rendered) -> str:
    entries = [section for section in rendered.sections if section.level == 2]
    if len(entries) < 2:
        return ""
    lines = "\n".join(f'<li><a href="#{each.anchor}">{escape(each.title)}</a></li>' for each in entries)
    return f'<aside aria-label="On this page"><p>On this page</p><ul>\n{lines}\n</ul></aside>'


def _way(here: Page, there: Page) -> str:
    return posixpath.relpath(there.target, posixpath.dirname(here.target) or ".")


def _index(pages: Sequence[Page], rendered: Mapping[str, Rendered]) -> str:
    """A script rather than JSON: pages on a disk may not fetch their neighbours, but may load a script."""
    entries = [
        # The title of the page, of the section, where it is, what it says.
        [rendered[page.source].title, section.title, f"{page.target}#{section.anchor}", section.text[:INDEXED_MAX]]
        for page in pages
        for section in rendered[page.source].sections
    ]
    written = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    return f"window.tabherdSections = {written};\n"


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
