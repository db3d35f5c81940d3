"""cli.md, from the commands and options of `tabherd.cli.main`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from tabherd.cli.main import app

from .markdown import row, table


def write() -> Iterator[str]:
    yield from (
        "# Command line",
        "",
        "Exit codes: 0 done, 1 refused or failed (the typed error is printed, as JSON with `--json`), 2 the command",
        "line is wrong, 130 Ctrl-C. Commands find the server of this machine through the state directory;",
        "`TABHERD_URL` and `TABHERD_TOKEN` name another. `tabherd --install-completion` teaches your shell to",
        "complete all of this.",
    )
    yield from _commands(typer.main.get_command(app), "tabherd")


def _commands(command: Any, path: str) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children is not None:
        for name, child in children.items():
            yield from _commands(child, f"{path} {name}")
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join((path, *(_shown(argument) for argument in arguments)))
    yield from ("", f"## {path}", "", command.help or "", "", "```text", usage, "```", "")
    yield from table("option", "meaning")
    for option in options:
        takes = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
        yield row(f"`{', '.join((*option.opts, *option.secondary_opts))}{takes}`", option.help or "")


def _shown(argument: Any) -> str:
    return f"[{argument.metavar}]..." if argument.nargs == -1 else str(argument.metavar)
