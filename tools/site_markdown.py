"""Turns one page of Markdown into HTML: links to where pages are built, anchors as GitHub gives them, code in colours.

A link to a file that is no page of the site and no picture is shown as text: the site stands alone, and what it shows
can be followed. Besides the HTML a page gives its headings, and its text by section, for the search.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound
from site_pages import SiteError

PICTURES = (".svg", ".png")
# What fences are called here, where Pygments has another name for it.
_LANGUAGES = {"sh": "bash", "py": "python"}


@dataclass(frozen=True, slots=True)
class Section:
    """What stands under one heading; the first of a page has the anchor and title of the page itself."""

    anchor: str
    title: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """One page as HTML, with what others need to know of it."""

    title: str
    html: str
    sections: tuple[Section, ...]
    # Pictures that it shows, by their path in the repository.
    pictures: frozenset[str]


@dataclass(slots=True)
class _Work:
    """What is known of the page that is being rendered."""

    source: str
    targets: Mapping[str, str]
    pictures: set[str] = field(default_factory=set)
    # Whether each link that is open was really written as one.
    links: list[bool] = field(default_factory=list)

    def resolve(self, link: str) -> str | None:
        """What a link becomes on the built page; None if it leads out of the site."""
        if re.match(r"[a-z]+:", link):
            return link
        path, hash_sign, anchor = link.partition("#")
        if not path:
            return link
        found = posixpath.normpath(posixpath.join(posixpath.dirname(self.source), path))
        here = posixpath.dirname(self.targets[self.source])
        if found in self.targets:
            return posixpath.relpath(self.targets[found], here or ".") + hash_sign + anchor
        if found.endswith(PICTURES):
            self.pictures.add(found)
            return posixpath.relpath(picture_target(found), here or ".")
        return None


def picture_target(source: str) -> str:
    """Where a picture of the repository lies in the site."""
    return source.removeprefix("docs/")


def render(source: str, text: str, targets: Mapping[str, str]) -> Rendered:
    """One page; `targets` says where every page of the site is built to, by its source."""
    work = _Work(source, targets)
    tokens = _PARSER.parse(text)
    sections = _anchored(source, tokens)
    html = _PARSER.renderer.render(tokens, _PARSER.options, {"work": work})
    return Rendered(sections[0].title, html, tuple(sections), frozenset(work.pictures))


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _anchored(source: str, tokens: Sequence[Token]) -> list[Section]:
    """Give every heading its anchor; answers with the text of the page by section."""
    sections: list[Section] = []
    seen: dict[str, int] = {}
    words: list[str] = []
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            title = _plain(tokens[at + 1])
            if sections:
                sections[-1] = _filled(sections[-1], words)
            anchor = slug(title)
            seen[anchor] = seen.get(anchor, -1) + 1
            if seen[anchor]:
                anchor = f"{anchor}-{seen[anchor]}"
            token.attrSet("id", anchor)
            sections.append(Section(anchor, title, int(token.tag[1]), ""))
            words = []
        elif token.type == "inline" and tokens[at - 1].type != "heading_open":
            words.append(_plain(token))
        elif token.type in ("fence", "code_block"):
            words.append(token.content)
    if not sections or sections[0].level != 1:
        raise SiteError(f"{source} has no title; begin it with '# '.")
    sections[-1] = _filled(sections[-1], words)
    return sections


def _filled(section: Section, words: Sequence[str]) -> Section:
    return Section(section.anchor, section.title, section.level, re.sub(r"\s+", " ", " ".join(words)).strip())


def _plain(inline: Token) -> str:
    """The text of a paragraph, heading or cell without its marks."""
    return "".join(
        " " if child.type in ("softbreak", "hardbreak", "html_inline") else child.content
        for child in inline.children or ()
    )


class _Renderer(RendererHTML):
    """What is rendered otherwise than by default."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return self.renderToken(tokens, idx, options, env)

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        opened = tokens[idx - 2]
        mark = (
            "" if opened.tag == "h1" else f' <a class="anchor" href="#{opened.attrGet("id")}" aria-label="Link">#</a>'
        )
        return f"{mark}</{tokens[idx].tag}>\n"

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        work: _Work = env["work"]
        target = work.resolve(str(tokens[idx].attrGet("href")))
        work.links.append(target is not None)
        return "<span>" if target is None else f'<a href="{escape(target)}">'

    def link_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</a>" if env["work"].links.pop() else "</span>"

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        work: _Work = env["work"]
        written = str(tokens[idx].attrGet("src"))
        target = work.resolve(written)
        if target is None or "://" in target:
            raise SiteError(f"{work.source}: {written} is no picture of this repository.")
        return f'<img src="{escape(target)}" alt="{escape(tokens[idx].content)}" loading="lazy">'

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        language = tokens[idx].info.strip().split(" ")[0] or "text"
        try:
            lexer = get_lexer_by_name(_LANGUAGES.get(language, language), stripall=False)
        except ClassNotFound:
            lexer = get_lexer_by_name("text")
        code = highlight(tokens[idx].content, lexer, _FORMATTER)
        return f'<div class="code" data-language="{escape(language)}"><pre><code>{code}</code></pre></div>\n'

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        # A wide table scrolls by itself on a narrow screen, and can be reached by keyboard.
        return '<div class="table" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</table></div>\n"


_FORMATTER = HtmlFormatter(nowrap=True)
# Raw HTML is the repository's own: line breaks within cells, and comments.
_PARSER = MarkdownIt("commonmark", {"html": True}, renderer_cls=_Renderer).enable("table")
