"""Runs JavaScript in a page; the result is what `JSON.stringify` makes of the value, in that page.

So undefined, functions and symbols are null, NaN and the infinities too, a Date is its ISO string, a DOM node is {}
(it has nothing of its own to show), and what `JSON.stringify` refuses (cycles, BigInt) is a `javascript_error` that
says so. Promises are awaited. It is one round trip.

Invariant: however large a value, a message or a stack is, what the page sends is bounded. A browser that has to pass
on a string of 300 MB is busy with it for so long that everybody else's pages in it stop answering. Chromium has no
limit for what an evaluation returns, so the expression is run by a function of ours in the page, as Playwright does
it: by the page's own `eval`, in the global scope, where `let` and `const` last until its end.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import JavascriptError
from ..quoting import MESSAGE_MAX_CHARS, quoted
from .progress import Progress

# The most that a page may answer with: JSON, text or markup. Passing on a million characters costs the browser about
# 20 ms, in which it does nothing else, and this process up to 10 ms.
RESULT_MAX_CHARS: Final = 2_000_000
# Halves of surrogate pairs that are replaced in a long value.
HALVES_MAX: Final = 10_000
# What a page may put into an error of ours.
TEXT_MAX_CHARS: Final = 10_000
# Chromium's words for "the document that was to answer is no longer there".
_NAVIGATED: Final = (
    "Inspected target navigated or closed",
    "Execution context was destroyed",
    "Cannot find context with specified id",
    "Cannot find default execution context",
    "Promise was collected",
    "Not attached to an active page",
)
# What the caller's own code and ours are called in stacks.
_SOURCE: Final = "expression"
_OURS: Final = "tabherd"
_OUR_LINE: Final = re.compile(rf"\b{_OURS}:\d+:\d+|^    at eval \(<anonymous>\)$")
# It answers [1, value] with a simple value, [2, json], [3, length] when either is too long, or [0, message, stack,
# name]. What bounds them is syntax alone: a page may have replaced every function there is, but neither the length of
# a string nor its characters.
_RUN: Final = f"""((source, packed) => {{
  const cut = (text) => {{
    if (typeof text !== "string" || text.length <= {TEXT_MAX_CHARS}) return text;
    let start = "";
    for (let at = 0; at < {TEXT_MAX_CHARS}; at++) start += text[at];
    return start;
  }};
  const told = (thrown) => {{
    let message = "", stack = "", name = "";
    try {{
      if (typeof thrown === "string") message = thrown;
      else if (thrown !== null && (typeof thrown === "object" || typeof thrown === "function")) {{
        const {{stack: given, message: said, name: called}} = thrown;
        if (typeof called === "string") name = cut(called);
        if (typeof given === "string") stack = cut(given);
        if (typeof said !== "string") message = JSON.stringify(thrown);
        else message = name === "" ? said : name + ": " + cut(said);
      }} else message = typeof thrown === "symbol" ? "a symbol" : "" + thrown;
    }} catch {{
      message = "something that cannot be shown";
    }}
    return [0, typeof message === "string" ? cut(message) : "something that cannot be shown", stack, name];
  }};
  const pack = (value) => {{
    if (value === undefined || value === null || typeof value === "boolean") return [1, value ?? null];
    // Neither NaN nor an infinity is 0 when it is taken from itself.
    if (typeof value === "number") return [1, value - value === 0 ? value + 0 : null];
    if (typeof value === "bigint") throw "The value is a BigInt, which JSON does not have.";
    const text = typeof value === "string" ? value : JSON.stringify(value);
    if (typeof text !== "string") return [1, null];
    if (text.length > {RESULT_MAX_CHARS}) return [3, text.length];
    return [typeof value === "string" ? 1 : 2, text];
  }};
  const late = async (value) => {{
    try {{
      return pack(await value);
    }} catch (thrown) {{
      return told(thrown);
    }}
  }};
  try {{
    const found = (0, eval)(source);
    const value = packed === null ? found : found(...JSON.parse(packed));
    const isLate = value !== null && typeof value === "object" && typeof value.then === "function";
    return isLate ? late(value) : pack(value);
  }} catch (thrown) {{
    return told(thrown);
  }}
}})"""


async def run_expression(tab: TabPort, action: wire.Evaluate, progress: Progress) -> Any:
    """The value of the expression; of the function it is, applied to them, when there are arguments."""
    progress.acts()
    return await evaluate(tab, action.expression, action.args)


async def evaluate(tab: TabPort, expression: str, arguments: list[Any] | None = None) -> Any:
    """The value of the expression, or of the function applied to the arguments; promises awaited."""
    # In brackets a function is a value. The newline ends a comment that it may end with.
    source = expression if arguments is None else f"({expression}\n)"
    # Parsed by the page rather than written as literals: in a literal, a key "__proto__" would mean something.
    packed = None if arguments is None else msgspec.json.encode(arguments).decode()
    words = ", ".join(json.dumps(word) for word in (f"{source}\n//# sourceURL={_SOURCE}", packed))
    params = {
        "expression": f"{_RUN}({words})\n//# sourceURL={_OURS}",
        "awaitPromise": True,
        "returnByValue": True,
    }
    try:
        answer = await tab.call("Runtime.evaluate", params)
        if "exceptionDetails" in answer:
            raise _failure("The page ended it.", json.dumps(answer["exceptionDetails"].get("text", ""))[:200])
        match answer["result"].get("value"):
            case [1, value]:
                return value
            case [2, str(text)]:
                return _decode(text)
            case [3, length]:
                raise _too_large(int(length))
            case [0, str(message), str(stack), str(name)]:
                if name == "SyntaxError" and f"{_SOURCE}:" not in stack:
                    stack = await _where(tab, source) or stack
                raise _failure(message, stack, 0 if arguments is None else 1)
            case other:
                raise _failure("The page answered with something else than what was evaluated.", repr(other)[:200])
    except CdpFailure as failure:
        if not is_navigation(failure):
            raise
        raise JavascriptError(
            "The page went to another document before the expression was finished.",
            action="Look at the page before you evaluate again: part of the expression may have run.",
            reason="navigated",
        ) from failure


def is_navigation(failure: CdpFailure) -> bool:
    """Whether Chromium refused because the document had gone."""
    return failure.message.startswith(_NAVIGATED)


async def _where(tab: TabPort, source: str) -> str:
    """Where it is no JavaScript, as a stack tells it: of what does not even begin to run there is none."""
    # Only compiled: what it would throw first is ours.
    answer = await tab.call("Runtime.evaluate", {"expression": f"throw 0;\n{source}"})
    details = answer["exceptionDetails"]
    if "objectId" in (thrown := details.get("exception", {})):
        await tab.call("Runtime.releaseObject", {"objectId": thrown["objectId"]})
    error = str(thrown.get("description", "")).partition("\n")[0]
    is_ours = thrown.get("value") == 0
    # Lines are counted from 0, and the first is ours.
    return "" if is_ours else f"{error}\n    at {_SOURCE}:{details['lineNumber']}:{details['columnNumber'] + 1}"


def _failure(message: str, stack: str, shift: int = 0) -> JavascriptError:
    """The page's own words for what was thrown, and where in the caller's own lines. `shift`: what we put before."""
    told = "\n".join(line for line in stack.split("\n") if not _OUR_LINE.search(line))[:TEXT_MAX_CHARS]
    if shift:
        told = re.sub(rf"\b{_SOURCE}:1:(\d+)", lambda at: f"{_SOURCE}:1:{max(1, int(at[1]) - shift)}", told)
    error = JavascriptError(f"The page threw: {quoted(message, MESSAGE_MAX_CHARS)}", stack=told)
    error.details["message"] = message
    if (at := re.search(rf"\b{_SOURCE}:(\d+):(\d+)", told)) is not None:
        error.details |= {"line": int(at[1]), "column": int(at[2])}
    return error


def _too_large(length: int) -> JavascriptError:
    return JavascriptError(
        f"The value is {length} characters long; an answer has {RESULT_MAX_CHARS} at most.",
        action="Return a part of it: the fields that you need, or slices, one evaluation each.",
        reason="too_large",
        lengthChars=length,
        maxChars=RESULT_MAX_CHARS,
    )


def _decode(text: str) -> Any:
    """The value; of a long one its JSON, unread."""
    try:
        return wire.value_of(text)
    except RecursionError as error:
        raise JavascriptError("The value is nested too deeply.") from error
    except msgspec.DecodeError as error:
        if len(text) <= wire.READ_MAX_CHARS:
            return _decode_loosely(text)
        try:
            return wire.value_of(_without_halves(text))
        except (msgspec.DecodeError, RecursionError):
            raise JavascriptError(f"The page's JSON.stringify makes no JSON: {error}.") from error


def _decode_loosely(text: str) -> Any:
    """JSON with halves of surrogate pairs in it, which pages can have and UTF-8 cannot: each becomes U+FFFD."""
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        return msgspec.json.decode(plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    except (ValueError, RecursionError) as error:
        # The page replaced JSON.stringify by something else.
        raise JavascriptError(f"The page's JSON.stringify makes no JSON: {error}.") from error


def _without_halves(text: str) -> str:
    """The same for long JSON. `JSON.stringify` escapes such halves, as \\ud800, and whole pairs never."""
    first, *rest = text.split("\\ud", HALVES_MAX)
    parts = [first]
    for part in rest:
        before = parts[-1]
        # A backslash that is itself escaped begins nothing.
        is_escape = (len(before) - len(before.rstrip("\\"))) % 2 == 0
        parts += ("\\ufffd", part[3:]) if is_escape else ("\\ud", part)
    return "".join(parts)
