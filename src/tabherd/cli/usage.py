"""What happens to a command line that is itself wrong: exit code 2, and JSON for whoever asked for JSON.

`--json` is a promise about everything that a command prints, so it holds also when the command was never begun.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperGroup

from .output import Voice

# All that can be wrong with a command line; typer gives only this one kind of it a public name.
UsageError: Final[type[Any]] = typer.BadParameter.__mro__[1]
USAGE: Final = 2


class Commands(TyperGroup):
    """The group of all commands."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """As ever, but that a refusal to run at all is JSON where JSON was asked for."""
        words = sys.argv[1:] if args is None else list(args)
        if "--json" not in words or not standalone_mode:
            return super().main(words, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        try:
            code = super().main(words, prog_name, complete_var, False, windows_expand_args, **extra)
        except UsageError as error:
            from ..errors import InvalidRequest

            path = error.ctx.command_path if error.ctx is not None else "tabherd"
            refusal = InvalidRequest(error.format_message(), action=f"Read '{path} --help'.", field="arguments")
            Voice(as_json=True).dump(refusal.to_wire())
            code = USAGE
        sys.exit(code or 0)
