"""What the situations of forms share: pages that write down what a field hears, and several calls in a row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from playwright.async_api import Page

from tabherd.wire import Fill

from .situation import Situation

# What filling and typing fire.
INPUT: Final = ("beforeinput", "input", "change", "blur")
KEYS: Final = ("keydown", "keypress", "keyup")


def recording(*types: str) -> str:
    """A script that writes down events as [type, id, what it is about, isTrusted], in `heard`.

    What it is about: of input its inputType and data, of a key its name and place.
    """
    return f"""<script>heard = [];
for (const type of {list(types or INPUT)}) {{
  addEventListener(type, (event) => {{
    const about = event instanceof InputEvent ? [event.inputType, event.data]
      : event instanceof KeyboardEvent ? [event.key, event.code] : [];
    heard.push([type, event.target.id ?? "", ...about, event.isTrusted]);
  }}, true);
}}</script>"""


def steps(*calls: Callable[[Page], Awaitable[Any]]) -> Callable[[Page], Awaitable[None]]:
    """One call after the other, as a user of Playwright writes them."""

    async def theirs(page: Page) -> None:
        for call in calls:
            await call(page)

    return theirs


def when(condition: str, answer: str) -> str:
    """An expression: the answer as soon as the condition holds."""
    return (
        f"new Promise((done) => {{ const look = () => {condition} ? done({answer}) : setTimeout(look, 5); look(); }})"
    )


# Keys, modifiers and numbers as a page is told them.
TOLD: Final = """<script>heard = [];
for (const type of ['keydown', 'keyup']) addEventListener(type, (event) => {
  if (event.key.startsWith('F')) event.preventDefault();
  const {key, code, keyCode, location, repeat, isTrusted} = event;
  const held = ['Alt', 'Control', 'Meta', 'Shift'].filter((each) => event.getModifierState(each)).join();
  heard.push([type, key, code, keyCode, location, held, repeat, isTrusted]);
});</script>"""


def filled(name: str, about: str, html: str, value: str, seen: str, selector: str = "#x") -> Situation:
    return Situation(
        name=f"fill-{name}",
        about=about,
        pages={"/": html},
        ours=[Fill(selector=selector, value=value)],
        theirs=lambda page: page.fill(selector, value),
        seen=seen,
    )


# The value of the field and what it has heard.
VALUE_AND_HEARD: Final = "[x.value, heard]"
