"""errors.md, from the error catalogue."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from tabherd import errors

from .markdown import row, table


def write() -> Iterator[str]:
    yield from (
        "# Errors",
        "",
        "Every error on every interface is `{code, message, retryable, retryAfterMs?, action, details}`. `code` is for",
        "programs, `message` for people, `action` is the legitimate next step. In Python each is an exception of",
        "`tabherd.errors`; the branches can be caught as well as the leaves.",
        "",
        "```text",
        *_tree(errors.TabherdError),
        "```",
    )
    for branch in _branches(errors.TabherdError):
        leaves = [child for child in branch.__subclasses__() if child.code]
        yield from ("", f"## {branch.__name__}", "")
        yield from table("code", "HTTP", "retryable", "when", "next step", "exception")
        for leaf in leaves:
            yield row(
                f"`{leaf.code}`",
                str(leaf.status),
                "yes" if leaf.retryable_by_default else "no",
                inspect.getdoc(leaf) or "",
                leaf.next_step,
                f"`{leaf.__name__}`",
            )


def _branches(root: type[errors.TabherdError]) -> Iterator[type[errors.TabherdError]]:
    for child in root.__subclasses__():
        if any(grandchild.code for grandchild in child.__subclasses__()):
            yield child
        yield from _branches(child)


def _tree(root: type[errors.TabherdError], depth: int = 0) -> Iterator[str]:
    codes = ", ".join(child.code for child in root.__subclasses__() if child.code)
    yield f"{'    ' * depth}{root.__name__}" + (f": {codes}" if codes else "")
    for child in root.__subclasses__():
        if not child.code:
            yield from _tree(child, depth + 1)
