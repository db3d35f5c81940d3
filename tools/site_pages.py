"""Which pages the site has, where each is built to, and in which order they are read.

The order and the groups are those of docs/index.md: what is not listed there, or reached through a page that is, is
no part of the documentation, and the build says so. Nothing is listed twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
CONTENTS = "docs/index.md"
# Pages outside of docs/, and where they go; the first is the front page.
OUTSIDE: Final[Mapping[str, str]] = {
    "README.md": "index.html",
    "CONTRIBUTING.md": "contributing.html",
    "CHANGELOG.md": "changelog.html",
}
# Pages that no list of the contents names, by what stands above them there.
BEHIND: Final[Mapping[str, str]] = {"docs/decisions/": "docs/decisions/README.md"}

_HEADING = re.compile(r"^(#{2,3}) (.+)$")
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


class SiteError(Exception):
    """The pages do not fit together; the message says which and how to mend it."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: the file it is written in and the one it is built to, both with slashes and from the root."""

    source: str
    target: str
    # What it is called in the navigation.
    name: str


@dataclass(frozen=True, slots=True)
class Group:
    """Pages that stand together in the navigation; a level of 3 lies below the group of level 2 before it."""

    title: str
    level: int
    pages: tuple[Page, ...]


def groups(root: Path = ROOT) -> tuple[Group, ...]:
    """The navigation, in the order of reading."""
    found = [
        Group("tabherd", 2, (Page("README.md", OUTSIDE["README.md"], "Overview"), _page(CONTENTS, "Contents"))),
        *_listed(root),
        Group("Project", 2, (_page("CHANGELOG.md", "Changes"), _page("CONTRIBUTING.md", "Contributing"))),
    ]
    listed = {page.source for group in found for page in group.pages}
    written = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")} | set(OUTSIDE)
    if lost := sorted(written - listed):
        raise SiteError(f"{', '.join(lost)}: on no list; add a line to {CONTENTS}.")
    if missing := sorted(listed - written):
        raise SiteError(f"{', '.join(missing)}: listed in {CONTENTS}, but not there.")
    return tuple(found)


def _listed(root: Path) -> Iterator[Group]:
    """The groups of the contents, with those pages put in that stand behind one of theirs."""
    title, level, pages = "", 2, list[Page]()
    for line in (root / CONTENTS).read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            if title:
                yield Group(title, level, tuple(pages))
            title, level, pages = heading[2], len(heading[1]), []
        elif title and (entry := _ENTRY.match(line)):
            source = f"docs/{entry[2]}"
            pages.append(_page(source, entry[1]))
            for folder, front in BEHIND.items():
                if source == front:
                    pages.extend(_behind(root, folder, front))
    yield Group(title, level, tuple(pages))


def _behind(root: Path, folder: str, front: str) -> Iterator[Page]:
    for path in sorted((root / folder).glob("*.md")):
        source = path.relative_to(root).as_posix()
        if source != front:
            title = _TITLE.search(path.read_text(encoding="utf-8"))
            if title is None:
                raise SiteError(f"{source} has no title; begin it with '# '.")
            yield _page(source, title[1])


def _page(source: str, name: str) -> Page:
    return Page(source, OUTSIDE.get(source) or _target(source), name)


def _target(source: str) -> str:
    """Where a page of docs/ is built to."""
    if source == CONTENTS:
        return "contents.html"
    inside = PurePosixPath(source).relative_to("docs")
    name = "index" if inside.name == "README.md" else inside.stem
    return (inside.parent / f"{name}.html").as_posix()
