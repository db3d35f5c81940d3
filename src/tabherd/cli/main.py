"""The `tabherd` command: every name and option a person can type, and nothing of what they do.

Work is imported inside the commands, so that `tabherd --help` answers at once. Exit codes: 0 done, 1 refused or failed
(the typed error is printed), 2 the command line itself is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .output import REFUSED, Json, speaking

app = typer.Typer(
    name="tabherd",
    help="One door to your browsers for a crowd of agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Drawing boxes around the help costs three times the help itself.
    rich_markup_mode=None,
)
session_app = typer.Typer(help="Lease sessions, see them, give them back.", no_args_is_help=True)
token_app = typer.Typer(help="Credentials for agents.", no_args_is_help=True)
app.add_typer(session_app, name="session")
app.add_typer(token_app, name="token")

ConfigPath = Annotated[
    Path | None, typer.Option("--config", help="Configuration file (TOML); else TABHERD_CONFIG names it.")
]


def main() -> int:
    """Entry point of the console script."""
    app()
    return 0


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"tabherd {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One door to your browsers for a crowd of agents."""


# --- The server -------------------------------------------------------------------------------------------------


@app.command()
def up(
    host: Annotated[str | None, typer.Option(help="Address to listen on; anything but loopback needs auth.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.")] = None,
    store: Annotated[str | None, typer.Option(help="sqlite:///PATH, or memory:// (nothing survives).")] = None,
    pool_size: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Browsers of the default pool: sets its browsers_min and browsers_max."),
    ] = None,
    config: ConfigPath = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Every caller is an admin; loopback only.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the server is ready; it logs to server.log in its state dir.")
    ] = False,
    as_json: Json = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the server in the foreground until Ctrl-C or 'tabherd down'."""
    from ..config import state_dir
    from . import serve

    with speaking(as_json) as voice:
        flags = serve.Flags(host=host, port=port, store=store, pool_size=pool_size, no_auth=no_auth)
        # Read here even when a child will read it again: a wrong key is answered at once, in one sentence.
        settings = serve.load_config(config, flags)
        state = state_dir()
        if ready_fd is None:
            serve.require_browsers(settings)
        if detach:
            record = serve.start_detached(_up_arguments(flags, config), state)
            voice.answer(record, serve.welcome(record, state))
            return
        code = serve.run(settings, state, lambda record: voice.answer(record, serve.welcome(record, state)), ready_fd)
    raise typer.Exit(code)


def _up_arguments(flags: Any, config: Path | None) -> list[str]:
    named = {
        "--host": flags["host"],
        "--port": flags["port"],
        "--store": flags["store"],
        "--pool-size": flags["pool_size"],
        "--config": config,
    }
    words = [str(word) for pair in named.items() if pair[1] is not None for word in pair]
    return [*words, "--no-auth"] if flags["no_auth"] else words


@app.command()
def down(config: ConfigPath = None, as_json: Json = False) -> None:
    """Stop the server: it finishes what runs (for at most [server] drain_s), ends its browsers and exits."""
    from ..config import load, state_dir
    from . import serve

    with speaking(as_json) as voice:
        pid = serve.stop(state_dir(), load(config).server.drain_s)
        leftovers = serve.end_leftovers(state_dir()) if pid is None else 0
        said = "No server is running." if pid is None else f"Stopped (pid {pid})."
        if leftovers:
            said += f" Ended {leftovers} browser(s) that a killed server had left."
        voice.answer({"stopped": pid, "leftovers": leftovers}, said)


@app.command()
def status(as_json: Json = False) -> None:
    """Say whether the server runs, and what it is doing."""
    from . import status as report

    with speaking(as_json) as voice:
        report.show(voice)


@app.command()
def drain(
    resume: Annotated[bool, typer.Option("--resume", help="Take the drain back: admit sessions again.")] = False,
    as_json: Json = False,
) -> None:
    """Let the server admit no new session; those that are open go on, and the server keeps running."""
    from . import calls

    with speaking(as_json) as voice:
        calls.drain(voice, resume=resume)


@app.command()
def doctor(config: ConfigPath = None, as_json: Json = False) -> None:
    """Check what a server needs on this machine, and say how to fix what is missing."""
    from ..config import state_dir
    from . import doctor as clinic

    with speaking(as_json) as voice:
        healthy = clinic.show(voice, clinic.examine(config, state_dir()))
    if not healthy:
        raise typer.Exit(REFUSED)


@app.command("install-browser")
def install_browser(as_json: Json = False) -> None:
    """Find a Chromium that tabherd can drive, or install one."""
    from . import browser

    with speaking(as_json) as voice:
        browser.ensure(voice)


# --- Callers ----------------------------------------------------------------------------------------------------


@session_app.command("new")
def session_new(
    agent: Annotated[str | None, typer.Option(help="Whose session; an agent's token is always its own.")] = None,
    pool: Annotated[str | None, typer.Option(help="Pool to lease from.")] = None,
    key: Annotated[str | None, typer.Option(help="Bucket it counts against, such as a vendor.")] = None,
    tier: Annotated[str | None, typer.Option(help="Named deadline.")] = None,
    deadline_ms: Annotated[int | None, typer.Option(help="Absolute life from now; wins over the tier.")] = None,
    wait_ms: Annotated[int | None, typer.Option(help="How long to wait for a place when all are taken.")] = None,
    keep_alive: Annotated[bool, typer.Option("--keep-alive", help="Keep it however quiet its owner is.")] = False,
    owner_pid: Annotated[int | None, typer.Option(help="Process on the server's machine whose death ends it.")] = None,
    access: Annotated[str | None, typer.Option(help="exclusive, or shared: other agents may use it, too.")] = None,
    reuse: Annotated[
        str | None, typer.Option(help="What of its page a release to the pool keeps: never, same-agent or any.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="First page.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id of its tab.")] = False,
    as_json: Json = False,
) -> None:
    """Lease a session with one tab."""
    from . import calls

    with speaking(as_json) as voice:
        fields: dict[str, Any] = {
            "agent_id": agent,
            "pool": pool,
            "key": key,
            "tier": tier,
            "deadline_ms": deadline_ms,
            "wait_ms": wait_ms,
            "keep_alive": keep_alive or None,
            "owner": None if owner_pid is None else {"pid": owner_pid},
            "access": access,
            "reuse": reuse,
            "url": url,
        }
        calls.new_session(voice, fields, quiet=quiet)


@session_app.command("ls")
def session_ls(
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    state: Annotated[str, typer.Option(help="Only those in this state.")] = "active",
    everything: Annotated[bool, typer.Option("--all", help="Those that have ended, too.")] = False,
    as_json: Json = False,
) -> None:
    """List the sessions you may see."""
    from . import calls

    with speaking(as_json) as voice:
        calls.list_sessions(voice, agent=agent, state=None if everything else state)


@session_app.command("end")
def session_end(
    session_id: Annotated[str, typer.Argument(metavar="SESSION")],
    fence: Annotated[int | None, typer.Option(help="Only if it is still this lease.")] = None,
    disposition: Annotated[
        str | None, typer.Option(help="pool: keep its tab for the next session of its key; or close.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Give a session back; its tabs close, or one is kept in the pool."""
    from . import calls

    with speaking(as_json) as voice:
        calls.end_session(voice, session_id, fence, disposition)


@app.command()
def act(
    tab_id: Annotated[str, typer.Argument(metavar="TAB")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="navigate, evaluate, text, screenshot, ...")],
    params: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Parameters; KEY:=JSON for lists and objects.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a screenshot to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Run one command on a tab and print its result."""
    from . import calls

    try:
        fields = calls.parse_params(kind, params or [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with speaking(as_json) as voice:
        calls.act(voice, tab_id, kind, fields, out)


@app.command()
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and print what happens.")] = False,
    as_json: Json = False,
) -> None:
    """Print what has happened lately; one line, or one JSON document, per event."""
    from . import events as stream

    with speaking(as_json) as voice:
        stream.show(voice, follow=follow)


@token_app.command("new")
def token_new(
    agent: Annotated[str, typer.Option(help="The agent that the token speaks for.")],
    scopes: Annotated[
        str | None, typer.Option(help="Comma-separated: browse, evaluate, tasks, locks, files, admin.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token for an agent. It is shown this once."""
    from . import calls

    with speaking(as_json) as voice:
        calls.new_token(voice, agent, scopes.split(",") if scopes else None)
