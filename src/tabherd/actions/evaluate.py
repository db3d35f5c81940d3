"""Runs JavaScript in a page; the result is what `JSON.stringify` makes of the value, in that page.

So undefined, functions and symbols are null, NaN and the infinities too, a Date is its ISO string, a DOM node is {}
(it has nothing of its own to show), and what `JSON.stringify` refuses (cycles, BigInt) is a `javascript_error` that
says so. Promises are awaited.

Primitive results take one round trip to the page, objects two: Chromium's own conversion would take one, but loses
dates and everything else with a `toJSON`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import msgspec

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import JavascriptError
from .progress import Progress

# Handles of one evaluation are dropped together. Shared by all of them, because a tab runs one action at a time.
_GROUP: Final = "tabherd"
# What a page may put into an error of ours.
TEXT_MAX_CHARS: Final = 10_000
# Chromium's words for "the document that was to answer is no longer there".
_NAVIGATED: Final = (
    "Inspected target navigated or closed",
    "Execution context was destroyed",
    "Cannot find context with specified id",
    "Cannot find default execution context",
    "Promise was collected",
)
_STRINGIFY: Final = "function() { return JSON.stringify(this) }"


async def run_expression(tab: TabPort, action: wire.Evaluate, progress: Progress) -> Any:
    """The value of the expression; of the function it is, applied to them, when there are arguments."""
    expression = action.expression if action.args is None else apply(action.expression, action.args)
    progress.acts()
    return await evaluate(tab, expression)


async def evaluate(tab: TabPort, expression: str) -> Any:
    """The value of the expression, promises awaited."""
    try:
        answer = await tab.call(
            "Runtime.evaluate", {"expression": expression, "awaitPromise": True, "objectGroup": _GROUP}
        )
        if "exceptionDetails" in answer:
            await tab.call("Runtime.releaseObjectGroup", {"objectGroup": _GROUP})
            raise _thrown(answer["exceptionDetails"])
        remote = answer["result"]
        return await _by_value(tab, remote) if "objectId" in remote else _primitive(remote)
    except CdpFailure as failure:
        if not is_navigation(failure):
            raise
        raise JavascriptError(
            "The page went to another document before the expression was finished.",
            action="Look at the page before you evaluate again: part of the expression may have run.",
            reason="navigated",
        ) from failure


def apply(function: str, arguments: list[Any]) -> str:
    """An expression that calls the function with these arguments."""
    # Parsed by the page rather than written as literals: in a literal, a key "__proto__" would mean something. The
    # newline ends a comment that the function may end with.
    packed = json.dumps(msgspec.json.encode(arguments).decode())
    return f"({function}\n)(...JSON.parse({packed}))"


def is_navigation(failure: CdpFailure) -> bool:
    """Whether Chromium refused because the document had gone."""
    return failure.message.startswith(_NAVIGATED)


def _primitive(remote: dict[str, Any]) -> Any:
    match remote:
        case {"type": "bigint"}:
            raise JavascriptError(
                "The value is a BigInt, which JSON does not have.", action="Return String(value) or Number(value)."
            )
        case {"unserializableValue": "-0"}:
            return 0
        case _:
            # undefined, NaN and the infinities have no `value`.
            return remote.get("value")


async def _by_value(tab: TabPort, remote: dict[str, Any]) -> Any:
    # One after the other on the wire, so the handle is used before it is dropped, at the price of one round trip.
    answer: dict[str, Any]
    answer, _ = await asyncio.gather(
        tab.call(
            "Runtime.callFunctionOn",
            {"functionDeclaration": _STRINGIFY, "objectId": remote["objectId"], "returnByValue": True},
        ),
        tab.call("Runtime.releaseObjectGroup", {"objectGroup": _GROUP}),
    )
    if "exceptionDetails" in answer:
        raise _thrown(answer["exceptionDetails"])
    text = answer["result"].get("value")
    # A page may have its own JSON.stringify, and a symbol or a function yields none.
    return _decode(text) if isinstance(text, str) and remote["type"] == "object" else None


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise JavascriptError("The value is nested too deeply.") from error
    except msgspec.DecodeError:
        return _decode_loosely(text)


def _decode_loosely(text: str) -> Any:
    """JSON with halves of surrogate pairs in it, which pages can have and UTF-8 cannot: each becomes U+FFFD."""
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        return msgspec.json.decode(plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    except (ValueError, RecursionError) as error:
        # The page replaced JSON.stringify by something else.
        raise JavascriptError(f"The page's JSON.stringify makes no JSON: {error}.") from error


def _thrown(details: dict[str, Any]) -> JavascriptError:
    """The page's own words for what was thrown."""
    thrown: dict[str, Any] = details.get("exception", {})
    stack = str(thrown.get("description") or "")
    if "value" in thrown:
        message = thrown["value"] if isinstance(thrown["value"], str) else json.dumps(thrown["value"])
    else:
        message = stack.partition("\n    at ")[0] or str(details.get("text", ""))
    message = message[:TEXT_MAX_CHARS]
    error = JavascriptError(f"The page threw: {message}", stack=stack[:TEXT_MAX_CHARS])
    error.details["message"] = message
    return error
