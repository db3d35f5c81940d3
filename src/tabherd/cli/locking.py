"""What callers can type about named locks: names and options, nothing of what they do."""

# No annotations as text in this file: typer would evaluate each of them twice before it can print its help.

from typing import Annotated

import typer

from .output import Json, speaking

locking = typer.Typer()
lock_app = typer.Typer(help="Run commands one at a time, by a name.", no_args_is_help=True)


@lock_app.command("run", context_settings={"ignore_unknown_options": True})
def lock_run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="1 to 200 printable characters, such as account:x.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, after two dashes.")],
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, max=3_600, help="How long to wait for the lock.")
    ] = 15.0,
    skip: Annotated[
        bool, typer.Option("--skip", help="If it is held, run nothing and exit with code 75, at once.")
    ] = False,
    agent: Annotated[str | None, typer.Option(help="Whose lock; an agent's token is always its own.")] = None,
) -> None:
    """Run a command while a named lock is held; its exit code is this one's.

    Exit codes of its own: 1 the lock could not be had, 75 it is held (--skip), 76 it was lost and the command was told
    to end, 126 and 127 the command could not be run. The command finds the lock's fence in TABHERD_LOCK_FENCE.
    """
    from . import locks

    with speaking(False) as voice:
        code = locks.run(voice, name, command, wait_s=wait_s, skip=skip, agent=agent)
    raise typer.Exit(code)


@locking.command("locks")
def list_locks(as_json: Json = False) -> None:
    """List the named locks that are held through the server or waited for."""
    from . import locks

    with speaking(as_json) as voice:
        locks.ls(voice)
