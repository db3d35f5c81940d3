"""What callers can type: sessions, commands, tasks, events, tokens; names and options, nothing of what they do."""

# No annotations as text in this file: typer would evaluate each of them twice before it can print its help.

from pathlib import Path
from typing import Annotated, Any

import typer

from . import completion
from .output import Json, speaking

calling = typer.Typer()
session_app = typer.Typer(help="Lease sessions, see them, give them back.", no_args_is_help=True)
task_app = typer.Typer(help="Have things done in their turn, and see what became of them.", no_args_is_help=True)
token_app = typer.Typer(help="Credentials for agents.", no_args_is_help=True)


@session_app.command("new")
def session_new(
    agent: Annotated[str | None, typer.Option(help="Whose session; an agent's token is always its own.")] = None,
    pool: Annotated[str | None, typer.Option(help="Pool to lease from.", autocompletion=completion.pools)] = None,
    key: Annotated[str | None, typer.Option(help="Bucket it counts against, such as a vendor.")] = None,
    tier: Annotated[str | None, typer.Option(help="Named deadline.")] = None,
    deadline_ms: Annotated[int | None, typer.Option(help="Absolute life from now; wins over the tier.")] = None,
    wait_ms: Annotated[
        int | None, typer.Option(help="How long to stand in line when all places are taken; then --wait adds nothing.")
    ] = None,
    wait_s: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="How long to try again when told to come back later."),
    ] = 30,
    keep_alive: Annotated[bool, typer.Option("--keep-alive", help="Keep it however quiet its owner is.")] = False,
    owner_pid: Annotated[int | None, typer.Option(help="Process on the server's machine whose death ends it.")] = None,
    access: Annotated[
        str | None,
        typer.Option(
            help="exclusive, or shared: other agents may use it, too.",
            autocompletion=completion.one_of("exclusive", "shared"),
        ),
    ] = None,
    reuse: Annotated[
        str | None,
        typer.Option(
            help="What of its page a release to the pool keeps: never, same-agent or any.",
            autocompletion=completion.one_of("never", "same-agent", "any"),
        ),
    ] = None,
    url: Annotated[str | None, typer.Option(help="First page.")] = None,
    viewport: Annotated[
        str | None, typer.Option(metavar="WxH[@SCALE]", help="Size of the page, such as 1280x720 or 390x844@3.")
    ] = None,
    storage_state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Cookies and localStorage to begin with, as Playwright writes them."),
    ] = None,
    allow_navigate: Annotated[
        bool | None,
        typer.Option(
            "--allow-navigate/--no-allow-navigate",
            help="Whether a page that died may be opened again at its address.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id of its tab.")] = False,
    as_json: Json = False,
) -> None:
    """Lease a session with one tab."""
    from . import sessions

    try:
        size = None if viewport is None else sessions.parse_viewport(viewport)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--viewport") from None
    with speaking(as_json) as voice:
        fields: dict[str, Any] = {
            "agent": agent,
            "pool": pool,
            "key": key,
            "tier": tier,
            "deadline_ms": deadline_ms,
            "wait_ms": wait_ms,
            "keep_alive": keep_alive or None,
            "owner": owner_pid,
            "access": access,
            "reuse": reuse,
            "url": url,
            "viewport": size,
            "storage_state": storage_state,
            "allow_navigate": allow_navigate,
        }
        sessions.new(voice, fields, wait_s=wait_s if wait_ms is None else 0, quiet=quiet)


@session_app.command("ls")
def session_ls(
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    state: Annotated[
        str, typer.Option(help="Only those in this state.", autocompletion=completion.session_states)
    ] = "active",
    everything: Annotated[bool, typer.Option("--all", help="Those that have ended, too.")] = False,
    as_json: Json = False,
) -> None:
    """List the sessions you may see."""
    from . import sessions

    with speaking(as_json) as voice:
        sessions.ls(voice, agent=agent, state=None if everything else state)


@session_app.command("end")
def session_end(
    session_id: Annotated[str, typer.Argument(metavar="SESSION", autocompletion=completion.sessions)],
    fence: Annotated[int | None, typer.Option(help="Only if it is still this lease.")] = None,
    disposition: Annotated[
        str | None,
        typer.Option(
            help="pool: keep its tab for the next session of its key; or close.",
            autocompletion=completion.one_of("pool", "close"),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Give a session back; its tabs close, or one is kept in the pool."""
    from . import sessions

    with speaking(as_json) as voice:
        sessions.end(voice, session_id, fence, disposition)


@calling.command()
def act(
    tab_id: Annotated[str, typer.Argument(metavar="TAB", autocompletion=completion.tabs)],
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="navigate, evaluate, text, screenshot, ...", autocompletion=completion.kinds
        ),
    ],
    params: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Parameters; KEY:=JSON for lists and objects.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a screenshot or PDF to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Run one command on a tab and print its result."""
    from . import calls

    with speaking(as_json) as voice:
        try:
            fields = calls.parse_params(kind, params or [])
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        calls.act(voice, tab_id, kind, fields, out)


@task_app.command("submit")
def task_submit(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]", help="navigate, evaluate, text, screenshot, ...", autocompletion=completion.kinds
        ),
    ] = None,
    params: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Parameters; KEY:=JSON for lists and objects.")
    ] = None,
    steps: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of KIND: a JSON list of actions for one turn.")
    ] = None,
    tab: Annotated[str | None, typer.Option(help="Tab to run on.", autocompletion=completion.tabs)] = None,
    session: Annotated[
        str | None, typer.Option(help="Session on whose first tab it runs.", autocompletion=completion.sessions)
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(help="Pool to lease from, without tab and session.", autocompletion=completion.pools),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Whose task; an agent's token is always its own.")] = None,
    priority: Annotated[int | None, typer.Option(help="Lower goes first, among one agent's.")] = None,
    deadline_ms: Annotated[int | None, typer.Option(min=1, help="When it must be over, from now.")] = None,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="Do it again when a crash leaves unknown whether it was done.")
    ] = False,
    idempotency_key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The same key and task: the first one instead.")
    ] = None,
    callback_url: Annotated[str | None, typer.Option(metavar="URL", help="Is called when it is over.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end and print its result.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only its id.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a task: it is on disk when this returns, and is run in its turn."""
    from . import calls, tasks

    if (kind is None) == (steps is None):
        raise typer.BadParameter("give a KIND, or --steps.", param_hint="KIND")
    with speaking(as_json) as voice:
        try:
            fields = calls.parse_params(kind or "", params or [])
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        options: dict[str, Any] = {
            "steps": None if steps is None else tasks.read_steps(steps),
            "tab": tab,
            "session": session,
            "pool": pool,
            "agent": agent,
            "priority": priority,
            "deadline_ms": deadline_ms,
            "idempotent": idempotent or None,
            "idempotency_key": idempotency_key,
            "callback_url": callback_url,
        }
        if wait:
            tasks.run(voice, kind, fields, options)
        else:
            tasks.submit(voice, kind, fields, options, quiet=quiet)


@task_app.command("ls")
def task_ls(
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    state: Annotated[
        str | None, typer.Option(help="Only those in this state.", autocompletion=completion.task_states)
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first.")] = False,
    as_json: Json = False,
) -> None:
    """List the tasks you may see that wait, run, or were over a short while ago."""
    from . import tasks

    with speaking(as_json) as voice:
        tasks.ls(voice, agent=agent, state=state, newest_first=newest)


@task_app.command("show")
def task_show(
    task_id: Annotated[str, typer.Argument(metavar="TASK", autocompletion=completion.tasks)], as_json: Json = False
) -> None:
    """Print everything about one task."""
    from . import tasks

    with speaking(as_json) as voice:
        tasks.show(voice, task_id)


@task_app.command("cancel")
def task_cancel(
    task_id: Annotated[str, typer.Argument(metavar="TASK", autocompletion=completion.tasks)], as_json: Json = False
) -> None:
    """End a task that waits or runs."""
    from . import tasks

    with speaking(as_json) as voice:
        tasks.cancel(voice, task_id)


@task_app.command("wait")
def task_wait(
    task_id: Annotated[str, typer.Argument(metavar="TASK", autocompletion=completion.tasks)],
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="Give up then; the task goes on.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a screenshot or PDF to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Wait until a task is over and print its result; exit code 1 if it failed or was cancelled."""
    from . import tasks

    with speaking(as_json) as voice:
        tasks.wait(voice, task_id, timeout_s, out)


@calling.command(short_help="Print what has happened lately.")
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and print what happens.")] = False,
    types: Annotated[
        str | None, typer.Option(help="Only these, comma-separated, such as session.*,tab.closed.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    tab: Annotated[str | None, typer.Option(help="Only this tab's.", autocompletion=completion.tabs)] = None,
    as_json: Json = False,
) -> None:
    """Print what has happened lately; one line, or one JSON document, per event."""
    from . import events as stream

    with speaking(as_json) as voice:
        stream.show(voice, follow=follow, types=types, agent=agent, tab=tab)


@token_app.command("new")
def token_new(
    agent: Annotated[str, typer.Option(help="The agent that the token speaks for.")],
    scopes: Annotated[
        str | None, typer.Option(help="Comma-separated: browse, evaluate, tasks, locks, files, admin.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="How long it is good, such as 30d, 12h or 90m; else until it is revoked.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token for an agent. It is shown this once; those the agent has already stay good."""
    from . import tokens

    try:
        expires_in_s = None if expires is None else tokens.parse_span(expires)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--expires") from None
    with speaking(as_json) as voice:
        tokens.new(voice, agent, scopes.split(",") if scopes else None, expires_in_s)


@token_app.command("ls")
def token_ls(
    agent: Annotated[str | None, typer.Option(help="Only this agent's; an agent's token sees its own.")] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Those that were revoked or have expired, too.")] = False,
    as_json: Json = False,
) -> None:
    """List tokens, without their secrets."""
    from . import tokens

    with speaking(as_json) as voice:
        tokens.ls(voice, agent=agent, is_all=is_all)


@token_app.command("revoke")
def token_revoke(
    token_ids: Annotated[list[str], typer.Argument(metavar="TOKEN_ID...", help="As 'tabherd token ls' shows them.")],
    as_json: Json = False,
) -> None:
    """End tokens, with their logins, addresses and sockets. Sessions stay until their leases end."""
    from . import tokens

    with speaking(as_json) as voice:
        tokens.revoke(voice, token_ids)
