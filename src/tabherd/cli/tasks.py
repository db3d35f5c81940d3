"""`task`: submitting tasks, listing them, looking at one, cancelling it, and waiting for its end.

A task outlives this command and needs nobody. Who waits on a terminal is shown how far it is; in a pipe only its result
is printed, as `act` prints it.
"""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from .. import wire
from ..client.submission import OVER, result_of
from ..client.sync import Tabherd, Task
from ..errors import InvalidRequest, StateConflict
from .calls import readable, write_result
from .output import Tell, Voice, printable

# How often a person who waits is told how far the task is.
WATCH_EVERY_S: Final = 1.0
# One that is watched by nobody is asked about as seldom as the server allows.
POLL_S: Final = 30.0
# How long a server that is being restarted is waited for.
PATIENCE_S: Final = 60.0
HEADINGS: Final = ("task", "agent", "action", "state", "position", "priority", "created", "error")
SPARE: Final = ("priority", "created", "position")


def submit(voice: Voice, kind: str | None, fields: dict[str, Any], options: dict[str, Any], *, quiet: bool) -> None:
    """Submit one and print its id. `fields` are the action's own, `options` those of the task."""
    with Tabherd(patience_s=0) as herd:
        task = _submitted(herd, kind, fields, options)
        view = task.status()
    voice.answer(view, task.id if quiet else f"{task.id} for {view.agent_id}: {_standing(view)}")


def run(voice: Voice, kind: str | None, fields: dict[str, Any], options: dict[str, Any]) -> None:
    """Submit one and wait for it."""
    with Tabherd(patience_s=0) as herd:
        task_id = _submitted(herd, kind, fields, options).id
    wait(voice, task_id, None, None)


def read_steps(path: Path) -> list[dict[str, Any]]:
    """The file: a JSON list of actions, each with its kind."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[dict[str, Any]])
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", field="steps") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{path} is not a list of actions: {error}.", field="steps") from None


def ls(voice: Voice, *, agent: str | None, state: str | None, newest_first: bool) -> None:
    """One line per task."""
    with Tabherd(patience_s=0) as herd:
        tasks = herd.tasks(agent=agent, state=state, newest_first=newest_first)
    voice.table(wire.TaskPage(tasks=tasks), HEADINGS, [_row(each) for each in tasks], empty="No tasks.", spare=SPARE)


def show(voice: Voice, task_id: str) -> None:
    """Everything about one."""
    with Tabherd(patience_s=0) as herd:
        view = herd.task(task_id).status()
    told = {name: value for name, value in msgspec.to_builtins(view).items() if value is not None}
    voice.answer(view, "\n".join(f"{name:<12}  {printable(_short(value))}" for name, value in told.items()))


def cancel(voice: Voice, task_id: str) -> None:
    """End it."""
    with Tabherd(patience_s=0) as herd:
        view = herd.task(task_id).cancel()
    voice.answer(view, f"Cancelled {task_id}.")


def wait(voice: Voice, task_id: str, timeout_s: float | None, out: Path | None) -> None:
    """Until it is over; its result is printed, or written to a file, and how it failed is how this command does."""
    with Tabherd(patience_s=PATIENCE_S) as herd, voice.progress(f"Waiting for {task_id}") as tell:
        view = _watch(herd.task(task_id), timeout_s, WATCH_EVERY_S if voice.shows_progress else POLL_S, tell)
    # Raises what it failed with, or that it was cancelled.
    result_of(view)
    if out is not None:
        size = write_result(out, view.result)
        voice.answer({"taskId": task_id, "file": str(out)}, f"Wrote {size} bytes to {out}.")
        return
    text = readable(view.result)
    voice.answer(view, text if voice.width is None else printable(text))


def _submitted(herd: Tabherd, kind: str | None, fields: dict[str, Any], options: dict[str, Any]) -> Task:
    aim = {name: fields[name] for name in ("selector", "ref") if name in fields}
    params = {name: value for name, value in fields.items() if name not in aim}
    return herd.submit(action=kind, params=params, **aim, **options)


def _watch(task: Task, timeout_s: float | None, every_s: float, tell: Tell) -> wire.TaskView:
    until_s = None if timeout_s is None else monotonic() + timeout_s
    while True:
        left_s = every_s if until_s is None else max(0.0, min(every_s, until_s - monotonic()))
        view = task.status(left_s)
        if view.state in OVER:
            return view
        if until_s is not None and monotonic() >= until_s:
            raise StateConflict(
                f"After {timeout_s:g} s the task is {view.state}; it goes on.",
                action=f"Wait for it again with 'tabherd task wait {task.id}', or cancel it.",
                taskId=task.id,
                state=view.state,
            )
        tell(f"{task.id} is {_standing(view)}")


def _standing(view: wire.TaskView) -> str:
    if view.position is None:
        return view.state
    start = f", starts in about {view.eta_ms / 1000:.0f} s" if view.eta_ms else ""
    return f"{view.state}, place {view.position}{start}"


def _row(view: wire.TaskView) -> tuple[str, ...]:
    place = "" if view.position is None else str(view.position)
    error = printable(view.error or "").partition("\n")[0]
    return (
        view.task_id,
        view.agent_id,
        view.action,
        view.state,
        place,
        str(view.priority),
        view.created_at,
        f"{view.code}: {error}" if view.code else "",
    )


def _short(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
