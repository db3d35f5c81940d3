"""How the command line speaks: tables and sentences to people, one JSON document to programs.

Answers go to stdout and refusals to stderr; with `--json` a refusal goes to stdout too, since it *is* the answer then.
Colours appear only on terminals. `speaking` is the one place where a typed error becomes an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import typer

from ..errors import TabherdError

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

REFUSED = 1


class Voice:
    """One command's way to answer."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def say(self, text: str) -> None:
        """A line for a person; silent in JSON."""
        if not self.as_json:
            print(text, flush=True)

    def answer(self, value: Any, text: str) -> None:
        """The one answer of a command: a value for programs, a text for people."""
        if self.as_json:
            self.dump(value)
        elif text:
            print(text, flush=True)

    def dump(self, value: Any) -> None:
        """One JSON document on a line of its own, whatever the mode."""
        print(msgspec.json.encode(value).decode(), flush=True)

    def table(self, value: Any, headings: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
        """Rows for a person, the value itself for programs."""
        if self.as_json:
            self.dump(value)
        elif not rows:
            print(empty, flush=True)
        else:
            self._draw(headings, rows)

    def refuse(self, error: TabherdError) -> None:
        """A typed error: what happened, its code, and the legitimate next step."""
        if self.as_json:
            self.dump(error.to_wire())
            return
        mark, code, plain = ("\x1b[31m", "\x1b[2m", "\x1b[0m") if sys.stderr.isatty() else ("", "", "")
        print(f"{mark}{error.message}{plain} {code}[{error.code}]{plain}", file=sys.stderr)
        if error.action:
            print(f"Next: {error.action}", file=sys.stderr, flush=True)

    def _draw(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        # rich costs as much to import as everything else here, so only those who draw pay for it.
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*headings, box=None, pad_edge=False, header_style="dim")
        for row in rows:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        # A pipe has no width of its own: rows must stay whole for grep and cut.
        Console(soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 1_000).print(table)


@contextmanager
def speaking(as_json: bool) -> Iterator[Voice]:
    """Run a command's body: a typed error is printed with its next step and ends the command with exit code 1."""
    voice = Voice(as_json)
    try:
        yield voice
    except TabherdError as error:
        voice.refuse(error)
        raise typer.Exit(REFUSED) from None
