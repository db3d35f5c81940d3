"""Situations of waiting: for elements that come and go, for texts, addresses and functions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from playwright.async_api import Page

from tabherd.wire import Wait

from .situation import PATIENT_MS, SHORT_MS, End, Situation

_SOON: Final = "<script>setTimeout(() => { %s }, 60)</script>"


def _waited(
    name: str, about: str, html: str, ours: Wait, theirs: Callable[[Page], Awaitable[Any]], end: End = "ok"
) -> Situation:
    return Situation(
        name=f"wait-{name}",
        about=about,
        pages={"/": html, "/next": "<p>next</p>"},
        ours=[ours],
        theirs=theirs,
        # What was waited for is there when the wait is over.
        seen="[document.body?.innerText, location.pathname + location.hash]",
        end=end,
        limit_ms=PATIENT_MS if end in ("ok", "wrong_kind", "javascript_error", "invalid_selector") else SHORT_MS,
    )


SITUATIONS: Final = (
    _waited(
        "visible",
        "What is shown later.",
        "<p id=x hidden>here</p>" + _SOON % "x.hidden = false",
        Wait(selector="#x"),
        lambda page: page.wait_for_selector("#x"),
    ),
    _waited(
        "attached",
        "What comes later.",
        _SOON % "document.body.innerHTML = '<p id=x hidden>here</p>'",
        Wait(selector="#x", state="attached"),
        lambda page: page.wait_for_selector("#x", state="attached"),
    ),
    _waited(
        "hidden",
        "What is hidden later.",
        "<p id=x>here</p>" + _SOON % "x.style.visibility = 'hidden'",
        Wait(selector="#x", state="hidden"),
        lambda page: page.wait_for_selector("#x", state="hidden"),
    ),
    _waited(
        "hidden-by-leaving",
        "What is taken away is hidden too.",
        "<p id=x>here</p>" + _SOON % "x.remove()",
        Wait(selector="#x", state="hidden"),
        lambda page: page.wait_for_selector("#x", state="hidden"),
    ),
    _waited(
        "detached",
        "What is taken away later.",
        "<p id=x>here</p>" + _SOON % "x.remove()",
        Wait(selector="#x", state="detached"),
        lambda page: page.wait_for_selector("#x", state="detached"),
    ),
    _waited(
        "hidden-never-there",
        "What was never there is hidden.",
        "<p>other</p>",
        Wait(selector="#x", state="hidden"),
        lambda page: page.wait_for_selector("#x", state="hidden"),
    ),
    _waited(
        "empty-is-hidden",
        "What has no size cannot be seen.",
        "<p id=x></p>" + _SOON % "x.textContent = 'now'",
        Wait(selector="#x"),
        lambda page: page.wait_for_selector("#x"),
    ),
    _waited(
        "shadow",
        "Inside a shadow root.",
        "<div id=h></div>" + _SOON % "h.attachShadow({mode: `open`}).innerHTML = `<p id=x>here</p>`",
        Wait(selector="#x"),
        lambda page: page.wait_for_selector("#x"),
    ),
    _waited(
        "text",
        "A text, whatever its case.",
        "<p id=x>Busy</p>" + _SOON % "x.textContent = 'All Done!'",
        Wait(text="all done"),
        lambda page: page.get_by_text("all done").wait_for(),
    ),
    _waited(
        "text-in-pieces",
        "A text over several elements.",
        "<p id=x></p>" + _SOON % "x.innerHTML = 'All <b>do</b>ne'",
        Wait(text="all done"),
        lambda page: page.get_by_text("all done").wait_for(),
    ),
    _waited(
        "text-gone",
        "A text that goes.",
        "<p id=x>Loading…</p>" + _SOON % "x.textContent = 'Here'",
        Wait(text="loading", state="hidden"),
        lambda page: page.get_by_text("loading").wait_for(state="hidden"),
    ),
    _waited(
        "url",
        "Another page.",
        _SOON % "location.href = '/next'",
        Wait(url="/next"),
        lambda page: page.wait_for_url("**/next"),
    ),
    _waited(
        "url-pushed",
        "An address that a script sets.",
        _SOON % "history.pushState(0, '', '/next#a')",
        Wait(url="*/next#a"),
        lambda page: page.wait_for_url("**/next#a"),
    ),
    _waited(
        "url-part",
        "A part of an address.",
        _SOON % "location.hash = 'step=2'",
        Wait(url="step=2"),
        lambda page: page.wait_for_url(re.compile("step=2")),
    ),
    _waited(
        "function",
        "A function.",
        _SOON % "globalThis.answer = 42",
        Wait(function="() => globalThis.answer"),
        lambda page: page.wait_for_function("() => globalThis.answer"),
    ),
    _waited(
        "function-promise",
        "A promise.",
        "",
        Wait(function="async () => 1"),
        lambda page: page.wait_for_function("async () => 1"),
    ),
    _waited(
        "function-next-page",
        "A function that is true on the next page only.",
        _SOON % "location.href = '/next'",
        Wait(function="location.pathname === '/next'"),
        lambda page: page.wait_for_function("location.pathname === '/next'"),
    ),
    _waited(
        "next-page",
        "An element of the next page.",
        _SOON % "location.href = '/next'",
        Wait(selector="text=next"),
        lambda page: page.wait_for_selector("text=next"),
    ),
    _waited(
        "never",
        "What never comes.",
        "<p>other</p>",
        Wait(selector="#x"),
        lambda page: page.wait_for_selector("#x"),
        "not_found",
    ),
    _waited(
        "never-shown",
        "What is never shown.",
        "<p id=x hidden>here</p>",
        Wait(selector="#x"),
        lambda page: page.wait_for_selector("#x"),
        "not_visible",
    ),
    _waited(
        "never-goes",
        "What never goes.",
        "<p id=x>here</p>",
        Wait(selector="#x", state="detached"),
        lambda page: page.wait_for_selector("#x", state="detached"),
        "timed_out",
    ),
    _waited(
        "function-throws",
        "A function that throws.",
        "",
        Wait(function="() => { throw new Error('boom') }"),
        lambda page: page.wait_for_function("() => { throw new Error('boom') }"),
        "javascript_error",
    ),
    _waited(
        "bad-selector",
        "A selector that is none.",
        "",
        Wait(selector="p[["),
        lambda page: page.wait_for_selector("p[["),
        "invalid_selector",
    ),
)
