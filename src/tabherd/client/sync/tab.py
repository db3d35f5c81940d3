# Written by tools/twin.py from client/aio; change that and run 'make docs'.
"""`Tab`: the verbs of a page. Each waits for its turn, is done exactly once, and answers with its result.

An element is named by a selector (CSS, `text=`, `role=`, `xpath=`, joined by `>>`) or by the `ref` that a snapshot
shows. Every verb takes `timeout_ms` (queue and work together) and `idempotency_key`: with a key, a command whose
connection broke is asked for again, and is still done only once.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

from ... import wire
from ...errors import TabherdError, TabNotFound, from_wire
from ..call import ANSWER_LIMIT_S, MARGIN_S, Call, command, get, segment, wire_names
from .seam import write_file

if TYPE_CHECKING:
    from .session import Session


class Options(TypedDict, total=False):
    """What every verb takes."""

    # Queue and work together.
    timeout_ms: int | None
    # The same key and parameters within five minutes: answered with the first outcome instead of being done again.
    idempotency_key: str | None
    # rebuild: after a timeout the page is replaced. keep: it is left as it is.
    on_timeout: Literal["rebuild", "keep"] | None
    # fail_fast: be refused at once when somebody else has the tab.
    wait_policy: Literal["fail_fast", "wait_with_timeout"] | None
    # How dialogs (alert, confirm, prompt) that open meanwhile are answered; by default as the pool has it.
    dialogs: Literal["accept", "dismiss"] | None
    # What a prompt gets; by default what the page suggests.
    prompt_text: str | None
    # When the page does not allow it: a picture of it in the error's `details["screenshot"]`, as base64 of a JPEG.
    screenshot_on_error: bool | None


class Tab:
    """One tab of a session."""

    def __init__(self, session: Session, tab_id: str) -> None:
        self.session = session
        self.id = tab_id

    def __eq__(self, other: object) -> bool:
        """Handles of one tab are alike, however often they were asked for."""
        return isinstance(other, Tab) and (self.session, self.id) == (other.session, other.id)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    # --- Going somewhere ----------------------------------------------------------------------------------------

    def goto(self, url: str, wait_until: wire.WaitUntil | None = None, **options: Unpack[Options]) -> Any:
        """Open an address and wait until it has loaded."""
        return self.act("navigate", url=url, wait_until=wait_until, **options)

    def back(self, wait_until: wire.WaitUntil | None = None, **options: Unpack[Options]) -> Any:
        """Go back in the tab's history."""
        return self.act("back", wait_until=wait_until, **options)

    def forward(self, wait_until: wire.WaitUntil | None = None, **options: Unpack[Options]) -> Any:
        """Go forward in the tab's history."""
        return self.act("forward", wait_until=wait_until, **options)

    def reload(self, wait_until: wire.WaitUntil | None = None, **options: Unpack[Options]) -> Any:
        """Load the page again."""
        return self.act("reload", wait_until=wait_until, **options)

    # --- Doing something ----------------------------------------------------------------------------------------

    def click(
        self,
        selector: str | None = None,
        *,
        ref: str | None = None,
        button: Literal["left", "right", "middle"] | None = None,
        modifiers: Sequence[wire.Modifier] | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Click an element once it is visible, stable, enabled and not covered."""
        return self.act("click", selector=selector, ref=ref, button=button, modifiers=modifiers, **options)

    def dblclick(
        self,
        selector: str | None = None,
        *,
        ref: str | None = None,
        button: Literal["left", "right", "middle"] | None = None,
        modifiers: Sequence[wire.Modifier] | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Click an element twice."""
        return self.act("dblclick", selector=selector, ref=ref, button=button, modifiers=modifiers, **options)

    def hover(
        self,
        selector: str | None = None,
        *,
        ref: str | None = None,
        modifiers: Sequence[wire.Modifier] | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Move the pointer over an element."""
        return self.act("hover", selector=selector, ref=ref, modifiers=modifiers, **options)

    def type(
        self,
        selector: str | None,
        text: str,
        *,
        ref: str | None = None,
        delay_ms: float | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Type key by key, behind what is there already."""
        return self.act("type", selector=selector, ref=ref, text=text, delay_ms=delay_ms, **options)

    def fill(self, selector: str | None, value: str, *, ref: str | None = None, **options: Unpack[Options]) -> Any:
        """Put a value in the place of what is there."""
        return self.act("fill", selector=selector, ref=ref, value=value, **options)

    def press(
        self, key: str, selector: str | None = None, *, ref: str | None = None, **options: Unpack[Options]
    ) -> Any:
        """Press a key, or keys held together (`Control+A`), on an element or where the focus is."""
        return self.act("press", key=key, selector=selector, ref=ref, **options)

    def select(
        self,
        selector: str | None,
        values: Sequence[str | int],
        *,
        ref: str | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Select options by value, label or number."""
        return self.act("select", selector=selector, ref=ref, values=values, **options)

    def check(
        self,
        selector: str | None = None,
        checked: bool = True,
        *,
        ref: str | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Check a box, or uncheck it."""
        return self.act("check", selector=selector, ref=ref, checked=checked, **options)

    def scroll(
        self,
        selector: str | None = None,
        *,
        ref: str | None = None,
        x: float | None = None,
        y: float | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Scroll the page or an element by so many pixels; without them, bring the element into view."""
        return self.act("scroll", selector=selector, ref=ref, x=x, y=y, **options)

    def drag(self, from_: str | Mapping[str, Any], to: str | Mapping[str, Any], **options: Unpack[Options]) -> Any:
        """Drag with the mouse. An end is a selector, `ref=...`, or a point of the viewport as `{"x": 10, "y": 20}`."""
        return self.act("drag", from_=from_, to=to, **options)

    def upload(
        self,
        selector: str | None,
        files: str | Path | Sequence[str | Path],
        *,
        ref: str | None = None,
        **options: Unpack[Options],
    ) -> list[str]:
        """Give a page files: into a file input, its label, or whatever opens the file chooser; none clears it.

        A `str` is the name of a file that the session has. A `Path` is a file of this machine, which the session gets
        first. Answers with the names as the page sees them.
        """
        names = []
        for file in [files] if isinstance(files, str | Path) else files:
            names.append((self.session.upload(file)).name if isinstance(file, Path) else file)
        seen: list[str] = self.act("upload", selector=selector, ref=ref, files=names, **options)
        return seen

    def wait(
        self,
        selector: str | None = None,
        *,
        ref: str | None = None,
        state: Literal["attached", "detached", "visible", "hidden"] | None = None,
        text: str | None = None,
        url: str | None = None,
        ms: int | None = None,
        function: str | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Wait for one thing: an element, a text, an address, a time, or a function of the page to be true."""
        fields = {"selector": selector, "ref": ref, "state": state, "text": text, "url": url}
        return self.act("wait", **fields, ms=ms, function=function, **options)

    def evaluate(self, expression: str, args: Sequence[Any] | None = None, **options: Unpack[Options]) -> Any:
        """What the page makes of a JavaScript expression; with `args` it is a function, and these its arguments."""
        return self.act("evaluate", expression=expression, args=args, **options)

    # --- Reading ------------------------------------------------------------------------------------------------

    def text(self, selector: str | None = None, *, ref: str | None = None, **options: Unpack[Options]) -> str:
        """What a reader sees, of the page or of an element."""
        found: str = self.act("text", selector=selector, ref=ref, **options)
        return found

    def html(self, selector: str | None = None, *, ref: str | None = None, **options: Unpack[Options]) -> str:
        """The HTML of the page or of an element."""
        found: str = self.act("html", selector=selector, ref=ref, **options)
        return found

    def snapshot(
        self,
        selector: str | None = None,
        *,
        ref: str | None = None,
        interactive: bool | None = None,
        **options: Unpack[Options],
    ) -> str:
        """The page as a compact tree with refs that the verbs take; `interactive`: only what can be acted upon."""
        tree: str = self.act("snapshot", selector=selector, ref=ref, interactive=interactive, **options)
        return tree

    def screenshot(
        self,
        path: str | Path | None = None,
        *,
        selector: str | None = None,
        ref: str | None = None,
        full_page: bool | None = None,
        format: Literal["png", "jpeg", "webp"] | None = None,
        **options: Unpack[Options],
    ) -> bytes:
        """A picture of the viewport, the whole page or an element; also written to `path` if given."""
        fields = {"selector": selector, "ref": ref, "full_page": full_page, "format": format}
        image = base64.b64decode(self.act("screenshot", **fields, **options))
        if path is not None:
            write_file(Path(path), image)
        return image

    def pdf(
        self,
        path: str | Path | None = None,
        *,
        format: Literal["A3", "A4", "A5", "Letter", "Legal", "Tabloid"] | None = None,
        landscape: bool | None = None,
        background: bool | None = None,
        scale: float | None = None,
        pages: str | None = None,
        **options: Unpack[Options],
    ) -> bytes:
        """The page as it would be printed; also written to `path` if given."""
        fields = {"format": format, "landscape": landscape, "background": background, "scale": scale, "pages": pages}
        content = base64.b64decode(self.act("pdf", **fields, **options))
        if path is not None:
            write_file(Path(path), content)
        return content

    def cookies(self, urls: Sequence[str] | None = None, **options: Unpack[Options]) -> list[dict[str, Any]]:
        """The cookies that these addresses would be sent; without them, those of the page."""
        found: list[dict[str, Any]] = self.act("cookies", urls=urls, **options)
        return found

    def set_cookies(self, cookies: Sequence[Mapping[str, Any]], **options: Unpack[Options]) -> Any:
        """Set cookies, spelt as Playwright does."""
        return self.act("setCookies", cookies=cookies, **options)

    def close(self, **options: Unpack[Options]) -> None:
        """Close the tab; a borrowed one is only given back."""
        self.act("close", **options)
        self.session.refresh()

    # --- Any action ---------------------------------------------------------------------------------------------

    def act(self, kind: str, **params: Any) -> Any:
        """Run one action by its kind and answer with its result."""
        return (self.perform(kind, **params)).result

    def perform(self, kind: str, **params: Any) -> wire.CommandView:
        """The same, and answer with all there is to know: the result, dialogs that opened, how long it took."""
        return self._perform("action", {"kind": kind, **wire_names(params)})

    def run(self, steps: Sequence[Mapping[str, Any]], **options: Unpack[Options]) -> list[Any]:
        """Several actions on one turn, as mappings with a `kind`: nobody else's command comes in between.

        The first that fails ends it and raises its error, which tells in `details["steps"]` what became of each.
        """
        done = self._perform("actions", {"steps": [wire_names(step) for step in steps], **wire_names(options)})
        if done.error is not None:
            error = from_wire(done.error)
            error.details |= {"commandId": done.command_id, "steps": done.result}
            raise error
        return [step["result"] for step in done.result]

    # --- Who has it ---------------------------------------------------------------------------------------------

    def view(self) -> wire.TabView:
        """The tab as it is now: its page, who has it, who waits for it."""
        return self.session.ask(get(self._path(), wire.TabView))

    def lock(self, lease_ms: int | None = None, wait_ms: int | None = None) -> TabLock:
        """Hold the tab across several commands of this session's handle, in `with`."""
        return TabLock(self, lease_ms, wait_ms)

    def handoff(self, by: str | None = None) -> wire.TabView:
        """Pause agents on this tab while a person drives it."""
        call = Call(method="POST", path=self._path("handoff"), answer=wire.TabView, body=wire_names({"by": by}))
        return self.session.ask(call)

    def resume(self) -> wire.TabView:
        """Give the tab back to agents."""
        return self.session.ask(Call(method="POST", path=self._path("resume"), answer=wire.TabView))

    # --- Parts --------------------------------------------------------------------------------------------------

    def _perform(self, verb: str, body: dict[str, Any]) -> wire.CommandView:
        session = self.session
        body.setdefault("waitPolicy", "wait_with_timeout")
        body |= {"sessionId": session.id, "fence": session.fence, "controllerId": session.controller_id}
        timeout_ms = body.get("timeoutMs")
        patience_s = None if timeout_ms is None else timeout_ms / 1000
        return session.ask(command(self._path(verb), body, patience_s=patience_s))

    def _path(self, *parts: str) -> str:
        return "/".join(["/tabs", segment(self.id), *parts])


class TabLock:
    """A tab held by one session handle across several commands. Made by `Tab.lock`."""

    def __init__(self, tab: Tab, lease_ms: int | None, wait_ms: int | None) -> None:
        self.tab = tab
        self._lease_ms = lease_ms
        self._wait_ms = wait_ms
        self._ticket: str | None = None

    def __enter__(self) -> Self:
        self._ask(wait_policy="wait_with_timeout", timeout_ms=self._wait_ms)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        query = {"ticket": self._ticket}
        try:
            self.tab.session.tell(Call(method="DELETE", path=self._path(), answer=bytes, query=query, may_repeat=True))
        except TabNotFound:
            # It ended with its tab.
            return
        except TabherdError:
            # Also when it had ended before: somebody else may have come in between, and who held it must know.
            if error is None:
                raise

    def renew(self) -> None:
        """Let its lease start anew; one that has ended meanwhile is `lock_not_found`."""
        self._ask(ticket=self._ticket)

    def _ask(self, **fields: Any) -> None:
        session = self.tab.session
        identity = {"session_id": session.id, "fence": session.fence, "controller_id": session.controller_id}
        call = Call(
            method="POST",
            path=self._path(),
            answer=wire.TabLockView,
            body=wire_names({"lock_lease_ms": self._lease_ms, **identity, **fields}),
            limit_s=ANSWER_LIMIT_S if self._wait_ms is None else self._wait_ms / 1000 + MARGIN_S,
        )
        self._ticket = (session.ask(call)).ticket

    def _path(self) -> str:
        return f"/tabs/{segment(self.tab.id)}/lock"
