"""The `tabherd` command: every name and option an operator can type, and nothing of what they do.

Work is imported inside the commands, so that `tabherd --help` answers at once. Exit codes: 0 done, 1 refused or failed
(the typed error is printed), 2 the command line itself is wrong, 130 Ctrl-C. The commands of callers are in `calling`.
"""

# No annotations as text in this file: typer would evaluate each of them twice before it can print its help.

from pathlib import Path
from typing import Annotated, Any

import typer

from . import completion
from .calling import calling, session_app, task_app, token_app
from .locking import lock_app, locking
from .output import REFUSED, Json, speaking
from .usage import Commands

app = typer.Typer(
    name="tabherd",
    cls=Commands,
    help="One door to your browsers for a crowd of agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Drawing boxes around the help costs three times the help itself.
    rich_markup_mode=None,
)

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


@app.command(short_help="Run the server.")
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

    def welcome(record: Any) -> None:
        voice.answer(record, "" if as_json else serve.welcome(record, state))

    with speaking(as_json) as voice:
        flags = serve.Flags(host=host, port=port, store=store, pool_size=pool_size, no_auth=no_auth)
        # Read here even when a child will read it again: a wrong key is answered at once, in one sentence.
        layers = serve.layers_of(config, flags)
        settings = layers.read()
        state = state_dir()
        if ready_fd is None:
            serve.require_browsers(settings)
        if detach:
            with voice.progress("Starting the server and its first browser"):
                record = serve.start_detached(_up_arguments(flags, config), state)
            welcome(record)
            return
        code = serve.run(settings, layers, state, welcome, ready_fd)
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


@app.command(short_help="Stop the server.")
def down(config: ConfigPath = None, as_json: Json = False) -> None:
    """Stop the server: it finishes what runs (for at most [server] drain_s), ends its browsers and exits."""
    from ..config import state_dir
    from ..config_layers import load
    from . import serve

    with speaking(as_json) as voice:
        drain_s = load(config).server.drain_s
        with voice.progress(f"Stopping the server; what runs may finish, for at most {drain_s} s"):
            pid = serve.stop(state_dir(), drain_s)
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


@app.command(short_help="Say where the dashboard is.")
def dashboard(
    opens: Annotated[bool, typer.Option("--open", help="Show it in this machine's browser.")] = False,
    as_json: Json = False,
) -> None:
    """Print the dashboard's address, which logs in whoever opens it: it contains your token."""
    from . import dashboard as board

    with speaking(as_json) as voice:
        board.show(voice, opens=opens)


@app.command(short_help="Watch the server live, and step in.")
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and leave.")] = False,
    interval_s: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.2, max=3_600, help="Between two looks at the server."),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Watch the server and step in: browsers, sessions, tabs, tasks, locks, agents, events.

    On a terminal the last line says which keys work, ? shows all of them, and q or Ctrl-C leaves.
    """
    from .top import watch

    with speaking(as_json) as voice:
        watch(voice, interval_s=interval_s, once=once)


@app.command(short_help="Admit no new session for now.")
def drain(
    resume: Annotated[bool, typer.Option("--resume", help="Take the drain back: admit sessions again.")] = False,
    as_json: Json = False,
) -> None:
    """Let the server admit no new session; those that are open go on, and the server keeps running."""
    from . import calls

    with speaking(as_json) as voice:
        calls.drain(voice, resume=resume)


@app.command(short_help="Check this machine; say how to fix it.")
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


@app.command(short_help="Measure the running server.")
def bench(
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="How often each round trip is measured.")] = 50,
    tabs: Annotated[int, typer.Option(min=1, max=200, help="Tabs that are driven at once, one session each.")] = 4,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="How long they are driven.")] = 3.0,
    agent: Annotated[str | None, typer.Option(help="Whose sessions; an agent's token is always its own.")] = None,
    pool: Annotated[str | None, typer.Option(help="Pool to measure.", autocompletion=completion.pools)] = None,
    as_json: Json = False,
) -> None:
    """Measure the running server as a client of it sees it: leases, round trips, commands per second."""
    from .bench import Plan, measure

    with speaking(as_json) as voice:
        measure(voice, Plan(rounds=rounds, tabs=tabs, seconds=seconds, agent=agent, pool=pool))


@app.command()
def demo(
    agents: Annotated[int, typer.Option(min=4, max=60, help="How many agents contend.")] = 20,
    tabs: Annotated[int, typer.Option(min=2, max=16, help="For how many tabs; one of them is shared.")] = 8,
    seconds: Annotated[float, typer.Option(min=2, max=300, help="For how long, before they finish and go.")] = 30.0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="What agents choose by chance; else another each time.")
    ] = None,
    no_crash: Annotated[bool, typer.Option("--no-crash", help="Kill nobody.")] = False,
    as_json: Json = False,
) -> None:
    """Show a crowd of agents on local pages: they contend, crash and recover; guarantees are recounted at the end."""
    import random

    from .demo.run import Wish, run

    with speaking(as_json) as voice:
        chosen = random.randrange(1_000_000) if seed is None else seed
        wish = Wish(agents=agents, tabs=tabs, seconds=seconds, seed=chosen, has_crashes=not no_crash)
        held = run(voice, wish)
    if not held:
        raise typer.Exit(REFUSED)


@app.command()
def mcp(
    agent: Annotated[
        str | None, typer.Option(help="Whom it acts for; else TABHERD_AGENT, else a name is made.")
    ] = None,
) -> None:
    """Serve MCP on stdin and stdout, for clients that start their MCP servers themselves."""
    from .mcp import serve

    with speaking(False):
        serve(agent)


# --- Callers ----------------------------------------------------------------------------------------------------

# Without a name of its own: its commands stand beside those above.
app.add_typer(calling)
app.add_typer(locking)
app.add_typer(session_app, name="session")
app.add_typer(task_app, name="task")
app.add_typer(lock_app, name="lock")
app.add_typer(token_app, name="token")
