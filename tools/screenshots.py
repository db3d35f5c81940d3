"""Takes the pictures of the documentation, docs/pictures/*.png, from a real run: `make screenshots`, NAME=name for one.

A server, a crowd of agents on local sites and a browser that looks at the dashboard are started for it and ended with
it, also when it fails. Each picture is a function here; those of an empty server come first, that of a server that is
gone last.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, Route, expect
from screenshots_camera import Camera, camera
from screenshots_crowd import Cast, working
from screenshots_server import running
from screenshots_site import serving
from screenshots_terminal import on_terminal

OUT: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures"
ALL_MAX_BYTES: Final = 3_000_000
BROKEN: Final = {
    "code": "store_unavailable",
    "message": "The store does not answer.",
    "action": "Look at the server's log; nothing is lost, and it is tried again.",
    "retryable": True,
    "details": {},
}
TERMINAL: Final = (118, 34)
DEMO_SECONDS: Final = 20
# How often a moment that passes is waited for.
TRIES: Final = 20
# Until the picture of a tab is that of its new size.
PICTURE_MS: Final = 1_500

Picture = Callable[[Camera, Cast, str], None]

# --- Of a server that nobody uses -----------------------------------------------------------------------------------


def login(at: Camera) -> None:
    page = at.window()
    page.goto(at.server.url)
    expect(page.get_by_label("Token")).to_be_focused()
    at.take(page, "state-login")


def empty(at: Camera) -> None:
    with at.dashboard() as page:
        at.go(page, "/tabs")
        expect(page.locator("[data-state=empty]")).to_be_visible()
        at.take(page, "state-empty")


def loading(at: Camera) -> None:
    held: list[Route] = []
    page = _first_reading(at, lambda route: held.append(route))
    expect(page.locator("main [data-state=loading]").first).to_be_visible()
    at.take(page, "state-loading")
    for route in held:
        route.abort()
    page.context.close()


def error(at: Camera) -> None:
    page = _first_reading(
        at, lambda route: route.fulfill(status=503, content_type="application/json", body=json.dumps(BROKEN))
    )
    expect(page.locator("main [data-state=error]").first).to_be_visible()
    at.take(page, "state-error")
    page.context.close()


def _first_reading(at: Camera, reply: Callable[..., object]) -> Page:
    page = at.window()
    page.goto(at.server.url)
    page.get_by_label("Token").fill(at.server.token)
    at.answering(page, reply)
    page.keyboard.press("Enter")
    expect(page.locator(".connection.live")).to_be_visible()
    page.evaluate("location.hash = '#/tabs'")
    expect(page.locator("main[data-page='/tabs']")).to_be_visible()
    return page


# --- Of a crowd -----------------------------------------------------------------------------------------------------


def _page(path: str, **how: Any) -> Picture:
    def take(at: Camera, cast: Cast, name: str) -> None:
        with at.dashboard(**how) as page:
            at.go(page, path.format(cast=cast))
            at.take(page, name)

    return take


def _tabs(**how: Any) -> Picture:
    """With the tab whose page hangs, while it is in quarantine, if it can be caught: that lasts for a moment only."""

    def take(at: Camera, cast: Cast, name: str) -> None:
        with at.dashboard(**how) as page:
            at.go(page, "/tabs")
            quarantined = page.locator(".badge", has_text="quarantined").first
            for _ in range(TRIES):
                expect(quarantined).to_be_visible()
                picture = at.seen(page, name)
                if quarantined.is_visible():
                    break
            at.keep(name, picture)

    return take


def _live(**how: Any) -> Picture:
    """With a person driving."""

    def take(at: Camera, cast: Cast, name: str) -> None:
        with at.dashboard(**how) as page:
            at.go(page, f"/tabs/{cast.tab_to_drive}/live")
            expect(page.locator(".live-stage canvas")).to_be_visible()
            page.get_by_role("button", name="Take over").click()
            expect(page.locator("[data-driver=you]")).to_be_visible()
            page.wait_for_timeout(PICTURE_MS)
            at.take(page, name)
            page.get_by_role("button", name="Give back").click()
            expect(page.locator("[data-driver=none]")).to_be_visible()
            at.go(page, "/tabs")

    return take


def _config(at: Camera, cast: Cast, name: str) -> None:
    with at.dashboard() as page:
        at.go(page, "/config")
        # Says where on this machine the file is.
        page.locator("main .where").evaluate("(where) => { where.hidden = true; }")
        at.take(page, name)


def _forbidden(at: Camera, cast: Cast, name: str) -> None:
    with at.dashboard(token=cast.agent_token) as page:
        at.go(page, "/config")
        expect(page.locator("[data-state=forbidden]")).to_be_visible()
        at.take(page, name)


def _top(at: Camera, cast: Cast, name: str) -> None:
    with on_terminal(["top"], at.server.environment(), *TERMINAL) as terminal:
        terminal.read_until("shop-scout")
        terminal.read_for(4.0)
        at.take_terminal(terminal.screen.html(), name)
        terminal.type("q")
        terminal.read_to_end()


def _demo(at: Camera, cast: Cast, name: str) -> None:
    words = ["demo", "--seconds", str(DEMO_SECONDS), "--seed", "7"]
    with on_terminal(words, at.server.environment(), *TERMINAL) as terminal:
        terminal.read_to_end()
        at.take_terminal(terminal.screen.html(), name)


PHONE: Final = {"is_phone": True}
DARK: Final = {"theme": "dark"}
BEFORE: Final[dict[str, Callable[[Camera], None]]] = {
    "state-login": login,
    "state-empty": empty,
    "state-loading": loading,
    "state-error": error,
}
CROWDED: Final[dict[str, Picture]] = {
    "overview": _page("/"),
    "overview-dark": _page("/", **DARK),
    "overview-phone": _page("/", **PHONE),
    "tabs": _tabs(),
    "tabs-dark": _tabs(**DARK),
    "tabs-phone": _tabs(**PHONE),
    "tab": _page("/tabs/{cast.tab_in_demand}"),
    "live": _live(),
    "live-dark": _live(**DARK),
    "live-phone": _live(**PHONE),
    "sessions": _page("/sessions"),
    "tasks": _page("/tasks"),
    "task": _page("/tasks/{cast.task_failed}"),
    "locks": _page("/locks"),
    "browsers": _page("/browsers"),
    "events": _page("/events"),
    "audit": _page("/audit"),
    "config": _config,
    "state-forbidden": _forbidden,
    "top": _top,
    "demo": _demo,
}
LAST: Final = "state-reconnecting"


def reconnecting(at: Camera) -> None:
    """Ends the server: nothing can be taken after it."""
    with at.dashboard() as page:
        at.go(page, "/tabs")
        at.server.stop()
        expect(page.locator("[data-state=reconnecting]")).to_be_visible()
        at.take(page, LAST)


def main() -> int:
    known = [*BEFORE, *CROWDED, LAST]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(known)}")
    parser.add_argument("--out", type=Path, default=OUT, help="the directory for them")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(known):
        parser.error(f"no picture named {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    names = [name for name in known if name in (chosen.names or known)]
    # Being told to end is no reason to leave servers and browsers behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with serving() as sites, running() as server, camera(server, chosen.out) as at:
        for name in names:
            if name in BEFORE:
                print(name, flush=True)
                BEFORE[name](at)
        if set(names) - set(BEFORE):
            with working(server, sites) as cast:
                for name in names:
                    if name in CROWDED:
                        print(name, flush=True)
                        CROWDED[name](at, cast, name)
                if LAST in names:
                    print(LAST, flush=True)
                    reconnecting(at)
    size = sum(file.stat().st_size for file in chosen.out.glob("*.png"))
    print(f"{len(names)} pictures; all of them together are {size / 1e6:.2f} MB.")
    if size > ALL_MAX_BYTES:
        print(f"That is more than {ALL_MAX_BYTES / 1e6:.0f} MB.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
