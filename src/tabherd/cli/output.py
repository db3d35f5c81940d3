"""How the command line speaks: tables and sentences to people, one JSON document to programs.

Answers go to stdout and refusals to stderr; with `--json` a refusal goes to stdout too, since it *is* the answer then.
Colours and progress appear only on terminals, and colours not where NO_COLOR is set. `speaking` is the one place where
a typed error, or a reader that has had enough, becomes an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ..errors import TabherdError

if TYPE_CHECKING:
    from rich.live import Live

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

REFUSED = 1
# Between two columns of a table.
GAP = 2
# A pipe has no width of its own: rows must stay whole for grep and cut.
PIPE_WIDTH = 1_000
# A shorter time to wait is not worth a sentence.
WORTH_SAYING_MS = 1_000

Tell = Callable[[str], None]


class Voice:
    """One command's way to answer."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        # What is shown on stderr while something takes its time.
        self._live: Live | None = None

    @property
    def width(self) -> int | None:
        """Columns of the terminal that reads this; None when a program does."""
        if self.as_json or not sys.stdout.isatty():
            return None
        # The terminal that is written to decides, whatever stdin is; COLUMNS wins, as everywhere.
        try:
            return int(os.environ.get("COLUMNS", "")) or 80
        except ValueError:
            return os.get_terminal_size(sys.stdout.fileno()).columns or 80

    def say(self, text: str) -> None:
        """A line for a person; silent in JSON."""
        if not self.as_json:
            self._print(text)

    def note(self, lines: Iterable[str]) -> None:
        """What a person may want to know besides the answer, on stderr, which no program reads; silent in JSON."""
        for line in () if self.as_json else lines:
            print(printable(line), file=sys.stderr, flush=True)

    def answer(self, value: Any, text: str) -> None:
        """The one answer of a command: a value for programs, a text for people."""
        if self.as_json:
            self.dump(value)
        elif text:
            self._print(text)

    def dump(self, value: Any) -> None:
        """One JSON document on a line of its own, whatever the mode."""
        import msgspec

        self._print(msgspec.json.encode(value).decode())

    def table(
        self,
        value: Any,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        empty: str,
        spare: Sequence[str] = (),
    ) -> None:
        """Rows for a person, the value itself for programs.

        `spare` names the columns that may go, the first one first, where the terminal is too narrow for all.
        """
        if self.as_json:
            self.dump(value)
        elif not rows:
            self._print(empty)
        else:
            self._draw(headings, rows, spare)

    def refuse(self, error: TabherdError) -> None:
        """A typed error: what happened, its code, and the legitimate next step."""
        if self.as_json:
            self.dump(error.to_wire())
            return
        red, dim, plain = ("\x1b[31m", "\x1b[2m", "\x1b[0m") if is_colourful(sys.stderr) else ("", "", "")
        # A page may have written it: what it threw, its title, its address.
        print(f"{red}{printable(error.message)}{plain} {dim}[{printable(error.code)}]{plain}", file=sys.stderr)
        hints = [printable(hint) for hint in _hints(error)]
        if hints:
            print(" ".join(hints), file=sys.stderr)
        if "dialogs" in error.details:
            from ..client import dialogs

            self.note(dialogs.of_error(error.details))
        if error.action:
            print(f"Next: {printable(error.action)}", file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, text: str) -> Iterator[Tell]:
        """Show on stderr what is being done while it is; yields what changes the text. Quiet but on a terminal."""
        if not self.shows_progress:
            yield lambda _: None
            return
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        console = Console(stderr=True, color_system="auto" if is_colourful(sys.stderr) else None)
        spinner = Spinner("dots", Text(text))

        def tell(told: str) -> None:
            # On one line, behind the dots and a blank; and brackets in it are no markup.
            spinner.update(text=Text(told[: console.width - 3]))

        # Left to itself it would send what is meant for stdout to stderr.
        live = Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        try:
            # Begun inside, so that a Ctrl-C that comes while it begins does not leave the cursor hidden.
            live.start()
            self._live = live
            yield tell
        finally:
            self._live = None
            live.stop()

    @property
    def shows_progress(self) -> bool:
        return not self.as_json and sys.stderr.isatty()

    def _draw(self, headings: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str]) -> None:
        # rich costs as much to import as everything else here, so only those who draw pay for it.
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        kept = _fitting(headings, rows, spare, self.width)
        table = Table(*(headings[each] for each in kept), box=None, pad_edge=False, header_style="dim")
        for row in rows:
            # An agent may have written it: the key of its session, the name of its lock.
            table.add_row(*(Text(one_line(row[each]), overflow="fold") for each in kept))
        console = Console(
            color_system="auto" if is_colourful(sys.stdout) else None,
            width=self.width or PIPE_WIDTH,
            soft_wrap=self.width is None,
        )
        with console.capture() as drawn:
            console.print(table)
        # Printed by us, so that a reader who has had enough is met in one place.
        self._print(drawn.get().removesuffix("\n"))

    def _print(self, text: str) -> None:
        if self._live is None:
            print(text, flush=True)
            return
        # Both may be one terminal: a line is never written behind the progress, but in its place.
        self._live.stop()
        print(text, flush=True)
        self._live.start()


def is_colourful(stream: TextIO) -> bool:
    """Whether colours may be sent there."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """The text without what a terminal would obey instead of showing it: it may come from a page or another agent."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text)


def one_line(text: str) -> str:
    """The same on one line: what somebody else wrote does not pass for a line of ours."""
    return printable(text.replace("\n", " ").replace("\t", " "))


@contextmanager
def speaking(as_json: bool) -> Iterator[Voice]:
    """Run a command's body: a typed error is printed with its next step and ends the command with exit code 1."""
    voice = Voice(as_json)
    try:
        yield voice
    except TabherdError as error:
        voice.refuse(error)
        raise typer.Exit(REFUSED) from None
    except BrokenPipeError:
        # `| head` has read what it wanted. What is still buffered must go somewhere when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def _hints(error: TabherdError) -> Iterator[str]:
    """What a refusal because of load says besides."""
    position = error.details.get("position")
    if isinstance(position, int):
        yield f"Place in line: {position}."
    if error.retry_after_ms is not None and error.retry_after_ms >= WORTH_SAYING_MS:
        yield f"Worth trying again in {error.retry_after_ms / 1000:.0f} s."


def _fitting(
    headings: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], width: int | None
) -> list[int]:
    """Which columns to draw."""
    widths = [max(len(row[each]) for row in (headings, *rows)) + GAP for each in range(len(headings))]
    kept = list(range(len(headings)))
    for name in spare:
        if width is None or sum(widths[each] for each in kept) - GAP <= width:
            break
        kept.remove(headings.index(name))
    return kept
