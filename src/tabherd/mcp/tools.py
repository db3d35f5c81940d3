"""The tools: one table with a name, a sentence, the parameters and a function each.

All names begin with `browser_`, because clients show the tools of several servers side by side. Answers are short
texts: a model pays for every word. What is missing here is what no route of the server offers yet; a new tool is one
more row.

An answer is made of lines, and nothing that is put into a line can end it (see `server`). Within a line, whatever a
page or somebody else chose goes through `quoted`, or is JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from .. import wire
from ..client import dialogs
from ..client.aio import AsyncTab
from ..client.submission import OVER, result_of
from ..errors import InvalidRequest
from ..quoting import quoted
from . import parameters as p
from .desk import Desk
from .digest import CHARS_MAX, digest
from .waiting import Report, for_tab, for_task, seconds, standing, told_while

# Beyond it a picture is taken again as JPEG, and then refused: clients choke on more.
PICTURE_MAX_BYTES: Final = 1 << 20
PICTURE_LIMIT_BYTES: Final = 4 << 20
# In which order formats are tried, and how large each may be.
PICTURES: Final[tuple[tuple[Literal["png", "jpeg"], int], ...]] = (
    ("png", PICTURE_MAX_BYTES),
    ("jpeg", PICTURE_LIMIT_BYTES),
)
# Under which a printed page is kept; a second one gets a number.
PDF_NAME: Final = "page.pdf"
# What is shown of a result of JavaScript.
RESULT_CHARS_MAX: Final = 20_000
# How many of those who wait for a tab are named.
WAITERS_MAX: Final = 5
# How many files are listed, how large one may be that is read, and what else it is good for.
FILES_MAX: Final = 50
FILE_READ_MAX_BYTES: Final = 1 << 20
FILE_USES: Final = "browser_upload gives it to a page, and your program can fetch it."
# How many options and files are named, and how much is shown of an address.
NAMED_MAX: Final = 20
URL_MAX_CHARS: Final = 500


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """An image, for the model to look at."""

    data: bytes
    media_type: str


# A text, line by line.
Lines = list[str]
Result = Lines | Picture


class Deed(NamedTuple):
    """What came of an action."""

    result: Any
    # Which dialogs the page opened, and what it downloads.
    notes: Lines


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    description: str
    parameters: type[p.Parameters]
    # Takes the desk, the parameters, and how to report progress.
    run: Callable[[Desk, Any, Report], Coroutine[Any, Any, Result]]
    # It changes nothing, on the page or elsewhere.
    is_reading: bool = False
    # It may end something that cannot be had back.
    is_destructive: bool = False


# --- Sessions ---------------------------------------------------------------------------------------------------


async def lease(desk: Desk, wish: p.Lease, report: Report) -> Result:
    session = await desk.lease(wish, report)
    tabs = ", ".join(tab.id for tab in session.tabs)
    return [f"Leased {session.id} with {tabs}, until {session.view.expires_at}."]


async def release(desk: Desk, wish: p.OnSession, report: Report) -> Result:
    session = await desk.release(wish.session_id)
    return [f"Released {session.id}."]


async def tabs(desk: Desk, wish: p.Tabs, report: Report) -> Result:
    match wish.action:
        case "new":
            opened = await (await desk.session(wish.session_id)).new_tab(wish.url)
            return [f"Opened {opened.id}."]
        case "close":
            tab = await desk.tab(wish.tab_id, wish.session_id)
            await tab.close()
            return [f"Closed {tab.id}."]
        case "list":
            sessions = await desk.sessions()
            lines = [
                f"{tab.tab_id} ({session.id}) {quoted(tab.title)} {quoted(tab.url)}"
                for session in sessions
                for tab in session.view.tabs
            ]
            return lines or ["No tabs are open."]


# --- Pages ------------------------------------------------------------------------------------------------------


async def navigate(desk: Desk, wish: p.Navigate, report: Report) -> Result:
    tab = await desk.tab_or_lease(wish.tab_id, wish.session_id, report)
    match wish.url:
        case "back" | "forward" | "reload" as way:
            deed = await _perform(desk, tab, wish, report, way, wait_until=wish.wait_until)
        case url:
            deed = await _perform(desk, tab, wish, report, "navigate", url=url, wait_until=wish.wait_until)
    page: dict[str, Any] = deed.result
    status = page.get("status")
    shown = f" (HTTP {status})" if isinstance(status, int) and status >= 400 else ""
    at, title = quoted(str(page.get("url", "")), URL_MAX_CHARS), quoted(str(page.get("title", "")))
    return [f"{tab.id} is at {at}{shown}, titled {title}.", *deed.notes]


async def snapshot(desk: Desk, wish: p.Snapshot, report: Report) -> Result:
    deed = await _act(desk, wish, report, "snapshot", interactive=wish.interactive)
    return [*_outline(deed.result, len(deed.result) if wish.full else CHARS_MAX), *deed.notes]


async def click(desk: Desk, wish: p.Click, report: Report) -> Result:
    kind = "dblclick" if wish.double else "click"
    deed = await _act(desk, wish, report, kind, button=wish.button, modifiers=wish.modifiers, **_asked(wish))
    return ["Clicked.", *deed.notes]


async def type_text(desk: Desk, wish: p.Type, report: Report) -> Result:
    return ["Typed.", *(await _act(desk, wish, report, "type", text=wish.text)).notes]


async def fill(desk: Desk, wish: p.Fill, report: Report) -> Result:
    return ["Filled.", *(await _act(desk, wish, report, "fill", value=wish.value)).notes]


async def press(desk: Desk, wish: p.Press, report: Report) -> Result:
    deed = await _act(desk, wish, report, "press", key=wish.key, **_asked(wish))
    return [f"Pressed {wish.key}.", *deed.notes]


async def select(desk: Desk, wish: p.Select, report: Report) -> Result:
    deed = await _act(desk, wish, report, "select", values=wish.values)
    return [f"Selected: {_named(deed.result)}.", *deed.notes]


async def drag(desk: Desk, wish: p.Drag, report: Report) -> Result:
    tab = await desk.tab(wish.tab_id, wish.session_id)
    return ["Dragged.", *(await _perform(desk, tab, wish, report, "drag", from_=wish.from_, to=wish.to)).notes]


async def upload(desk: Desk, wish: p.Upload, report: Report) -> Result:
    deed = await _act(desk, wish, report, "upload", files=wish.files)
    return [f"Given: {_named(deed.result)}.", *deed.notes]


async def wait(desk: Desk, wish: p.Wait, report: Report) -> Result:
    what = {"text": wish.text, "url": wish.url, "ms": wish.ms, "function": wish.function, "state": wish.state}
    return ["It is so.", *(await _act(desk, wish, report, "wait", **what)).notes]


async def evaluate(desk: Desk, wish: p.Evaluate, report: Report) -> Result:
    tab = await desk.tab(wish.tab_id, wish.session_id)
    what = {"expression": wish.expression, "args": wish.args, **_asked(wish)}
    deed = await _perform(desk, tab, wish, report, "evaluate", **what)
    return [*_shown(deed.result), *deed.notes]


async def screenshot(desk: Desk, wish: p.Screenshot, report: Report) -> Result:
    tab = await desk.tab(wish.tab_id, wish.session_id)
    for kind, limit_bytes in PICTURES:
        taking = tab.screenshot(
            selector=wish.selector,
            ref=wish.ref,
            full_page=wish.full_page,
            format=kind,
            timeout_ms=wish.timeout_ms,
        )
        data = await told_while(taking, for_tab(tab), report)
        if len(data) <= limit_bytes:
            return Picture(data=data, media_type=f"image/{kind}")
    raise InvalidRequest(
        f"The picture would have {len(data)} bytes, and {PICTURE_LIMIT_BYTES} are the most.",
        action="Take one of an element, or without fullPage.",
        field="fullPage",
    )


async def pdf(desk: Desk, wish: p.Pdf, report: Report) -> Result:
    tab = await desk.tab(wish.tab_id, wish.session_id)
    printing = tab.pdf(
        landscape=wish.landscape, background=wish.background, pages=wish.pages, timeout_ms=wish.timeout_ms
    )
    content = await told_while(printing, for_tab(tab), report)
    # A model has no use for the bytes, but the session has: they can be fetched, and given to another page.
    kept = await tab.session.upload(content, PDF_NAME)
    return [f"Printed as {quoted(kept.name)}, {kept.size_bytes} bytes, a file of {tab.session.id}."]


async def files(desk: Desk, wish: p.Files, report: Report) -> Result:
    session = await desk.session(wish.session_id)
    found = await session.files()
    if wish.name is None:
        more = [f"Before them, {len(found) - FILES_MAX} more."] if len(found) > FILES_MAX else []
        return [_file(each) for each in found[-FILES_MAX:]] + more or [f"{session.id} has no files."]
    size_bytes = next((each.size_bytes for each in found if each.name == wish.name), 0)
    if size_bytes > FILE_READ_MAX_BYTES:
        return [f"It has {size_bytes} bytes, and {FILE_READ_MAX_BYTES} are the most that is read here. {FILE_USES}"]
    content = await session.download(wish.name)
    try:
        return [quoted(content.decode(), RESULT_CHARS_MAX)]
    except UnicodeDecodeError:
        return [f"It is no text, but {len(content)} bytes of something else. {FILE_USES}"]


# --- Who has what -----------------------------------------------------------------------------------------------


async def who_holds(desk: Desk, wish: p.OnTab, report: Report) -> Result:
    if wish.tab_id is not None:
        return [_holding(await (await desk.line()).herd.tab_view(wish.tab_id))]
    sessions = [await desk.session(wish.session_id)] if wish.session_id else await desk.sessions()
    return [_holding(await tab.view()) for session in sessions for tab in session.tabs] or ["No tabs are open."]


async def handoff(desk: Desk, wish: p.Handoff, report: Report) -> Result:
    tab = await desk.tab(wish.tab_id, wish.session_id)
    if wish.resume:
        await tab.resume()
        return [f"{tab.id} is yours again."]
    await tab.handoff(wish.by)
    whose = "a person's" if wish.by is None else f"{quoted(wish.by)}'s"
    return [f"{tab.id} is {whose} now: your calls on it wait. Tell them, and resume when they are done."]


# --- Tasks ------------------------------------------------------------------------------------------------------


async def submit_task(desk: Desk, wish: p.SubmitTask, report: Report) -> Result:
    # What names an element is the task's own; a model need not know that it is not the action's.
    aim = {name: value for name, value in (wish.params or {}).items() if name in ("selector", "ref")}
    task = await (await desk.line()).herd.submit(
        action=wish.action,
        steps=wish.steps,
        # None is none: what it runs on must not depend on how many tabs there are just now.
        tab=None if wish.tab_id is None else await desk.tab(wish.tab_id, None),
        params={name: value for name, value in (wish.params or {}).items() if name not in aim},
        priority=wish.priority,
        deadline_ms=wish.deadline_ms,
        idempotent=wish.idempotent,
        **aim,
    )
    return [f"Submitted {task.id}. See what became of it with browser_task."]


async def look_at_task(desk: Desk, wish: p.LookAtTask, report: Report) -> Result:
    task = await desk.task(wish.task_id)
    if wish.cancel:
        await task.cancel()
        return [f"Cancelled {task.id}."]
    view = await told_while(task.status(wish.wait_ms / 1000), for_task(task), report)
    if view.state not in OVER:
        return [f"{task.id} is {standing(view)}. Ask again later."]
    result = result_of(view)
    if isinstance(result, bytes) and view.action == "pdf":
        return [f"{task.id} is done: a PDF of {len(result)} bytes. Its submitter's program can fetch it."]
    if isinstance(result, bytes):
        return Picture(data=result, media_type=f"image/{view.params.get('format', 'png')}")
    return _outline(result, RESULT_CHARS_MAX) if view.action == "snapshot" else _shown(result)


# --- Parts ------------------------------------------------------------------------------------------------------


async def _act(desk: Desk, wish: p.OnElement, report: Report, kind: str, **params: Any) -> Deed:
    """One action on the tab that is meant, aimed as the call says."""
    tab = await desk.tab(wish.tab_id, wish.session_id)
    return await _perform(desk, tab, wish, report, kind, selector=wish.selector, ref=wish.ref, **params)


async def _perform(desk: Desk, tab: AsyncTab, wish: p.Command, report: Report, kind: str, **params: Any) -> Deed:
    done = await told_while(tab.perform(kind, timeout_ms=wish.timeout_ms, **params), for_tab(tab), report)
    downloads = [f"Download: {_file(each)}. See browser_files." for each in await desk.news(tab.session)]
    return Deed(done.result, [*dialogs.of_command(done), *downloads])


def _asked(wish: p.Click | p.Press | p.Evaluate) -> dict[str, Any]:
    """How the call wants dialogs answered."""
    return {"dialogs": wish.dialogs, "prompt_text": wish.prompt_text}


def _shown(result: Any) -> Lines:
    """A result as JSON, as much of it as a model may want to read."""
    shown = msgspec.json.encode(result).decode()
    if len(shown) <= RESULT_CHARS_MAX:
        return [shown]
    return [shown[:RESULT_CHARS_MAX], f"... truncated: {len(shown)} characters in all. Ask for less."]


def _outline(snapshot: str, chars_max: int) -> Lines:
    """A snapshot. Only the script that wrote it ends lines in it: what the page says is quoted there."""
    return (digest(snapshot, chars_max) or "The page is empty.").split("\n")


def _file(file: wire.FileView) -> str:
    reason = f" ({file.reason})" if file.reason else ""
    origin = f", from {quoted(file.url)}" if file.url else ""
    return f"{quoted(file.name)}, {file.source} {file.state}{reason}, {file.size_bytes} bytes{origin}"


def _named(names: list[Any]) -> str:
    """Names that a page or a site gave, in quotes."""
    more = f", and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(quoted(str(name)) for name in names[:NAMED_MAX]) + more if names else "nothing"


def _holding(view: wire.TabView) -> str:
    holder = view.holder
    if holder is None:
        return f"{view.tab_id} ({view.state}): nobody."
    what = f"{holder.reason} {holder.kind}" if holder.kind else holder.reason
    until = f", until {holder.expires_at}" if holder.expires_at else ""
    said = f"{view.tab_id} ({view.state}): {what} of {quoted(holder.controller_id)}, since {holder.since}{until}."
    if not view.waiters:
        return said
    waiters = ", ".join(
        f"{each.position}. {quoted(each.agent_id)} ({each.kind})" for each in view.waiters[:WAITERS_MAX]
    )
    return f"{said} Waiting, {len(view.waiters)} in all: {waiters}. A newcomer waits {seconds(view.expected_wait_ms)}."


_TABLE: Final = (
    Tool(
        name="browser_lease",
        description="Lease a private browser session. browser_navigate leases the first by itself; call this for more.",
        parameters=p.Lease,
        run=lease,
    ),
    Tool(
        name="browser_navigate",
        description="Open an address in a tab and wait until it has loaded.",
        parameters=p.Navigate,
        run=navigate,
    ),
    Tool(
        name="browser_snapshot",
        description="Read the page as a short outline; its refs name elements for the other tools.",
        parameters=p.Snapshot,
        run=snapshot,
        is_reading=True,
    ),
    Tool(
        name="browser_click",
        description="Click an element.",
        parameters=p.Click,
        run=click,
    ),
    Tool(
        name="browser_type",
        description="Type text key by key into an element, behind what is there.",
        parameters=p.Type,
        run=type_text,
    ),
    Tool(
        name="browser_fill",
        description="Replace the value of a field.",
        parameters=p.Fill,
        run=fill,
    ),
    Tool(
        name="browser_press",
        description="Press a key, on an element or where the focus is.",
        parameters=p.Press,
        run=press,
    ),
    Tool(
        name="browser_select",
        description="Choose options of a list.",
        parameters=p.Select,
        run=select,
    ),
    Tool(
        name="browser_drag",
        description="Drag an element onto another with the mouse.",
        parameters=p.Drag,
        run=drag,
    ),
    Tool(
        name="browser_upload",
        description="Give files to a file input, or to whatever opens the file chooser.",
        parameters=p.Upload,
        run=upload,
    ),
    Tool(
        name="browser_wait",
        description="Wait for one of: an element, a text, an address, a time, a condition.",
        parameters=p.Wait,
        run=wait,
        is_reading=True,
    ),
    Tool(
        name="browser_evaluate",
        description="Run JavaScript in the page; answers with its result as JSON.",
        parameters=p.Evaluate,
        run=evaluate,
        is_destructive=True,
    ),
    Tool(
        name="browser_screenshot",
        description="Take a picture of the visible page, the whole page or an element.",
        parameters=p.Screenshot,
        run=screenshot,
        is_reading=True,
    ),
    Tool(
        name="browser_pdf",
        description="Print the page into a PDF, which becomes a file of the session.",
        parameters=p.Pdf,
        run=pdf,
    ),
    Tool(
        name="browser_files",
        description="List the files of the session, such as downloads, or read a short text file.",
        parameters=p.Files,
        run=files,
        is_reading=True,
    ),
    Tool(
        name="browser_tabs",
        description="List your tabs, open one more, or close one.",
        parameters=p.Tabs,
        run=tabs,
        is_destructive=True,
    ),
    Tool(
        name="browser_release",
        description="Give a session back when you are done with it; its pages are gone then.",
        parameters=p.OnSession,
        run=release,
        is_destructive=True,
    ),
    Tool(
        name="browser_who_holds",
        description="Say who is using a tab, since when, and who waits for it.",
        parameters=p.OnTab,
        run=who_holds,
        is_reading=True,
    ),
    Tool(
        name="browser_handoff",
        description="Hand a tab to a person, for a captcha or a login, or take it back.",
        parameters=p.Handoff,
        run=handoff,
    ),
    Tool(
        name="browser_submit_task",
        description="Queue an action, on your tab or a fresh page; it runs in its turn, even if you leave.",
        parameters=p.SubmitTask,
        run=submit_task,
        is_destructive=True,
    ),
    Tool(
        name="browser_task",
        description="Wait for a task you submitted and read its result, or cancel it.",
        parameters=p.LookAtTask,
        run=look_at_task,
        is_destructive=True,
    ),
)
TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in _TABLE}
