"""Reads the text of a page, or of the first element that matches a CSS selector, as a person would see it."""

from __future__ import annotations

from typing import Final

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import ElementNotFound, InvalidSelector
from .evaluate import ask, is_navigation

# Reading changes nothing, so it may be repeated on the next document when one goes away under it.
TRIES: Final = 3

# Documents that are not HTML have no body, and their elements no innerText.
_READ: Final = """(selector) => {
  let element = document.body || document.documentElement;
  if (selector !== null) {
    try {
      element = document.querySelector(selector);
    } catch (error) {
      return {invalid: String(error.message)};
    }
    if (element === null) return {};
  }
  if (element === null) return {text: ""};
  return {text: element.innerText === undefined ? element.textContent : element.innerText};
}"""


async def text(tab: TabPort, action: wire.Text) -> str:
    for attempt in range(1, TRIES + 1):
        try:
            found = await ask(tab, _READ, action.selector)
            break
        except CdpFailure as failure:
            if attempt == TRIES or not is_navigation(failure):
                raise
    if "invalid" in found:
        raise InvalidSelector(f"'{action.selector}' is not a CSS selector.", field="selector", error=found["invalid"])
    if "text" not in found:
        raise ElementNotFound(f"No element matches '{action.selector}'.", selector=action.selector)
    return str(found["text"])
