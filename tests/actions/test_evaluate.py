"""Evaluating JavaScript in a real page."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tabherd.actions.engine import perform
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import TabGone
from tabherd.errors import JavascriptError
from tabherd.wire import Evaluate, Navigate

from .driving import LIMIT_S, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def tab(tab: ChromiumTab) -> ChromiumTab:
    await perform(tab, Navigate(url="about:blank"))
    return tab


async def evaluate(tab: ChromiumTab, expression: str, args: list[Any] | None = None) -> Any:
    # A test that waits for what never comes shall fail, not hang.
    async with asyncio.timeout(LIMIT_S):
        return await perform(tab, Evaluate(expression=expression, args=args))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 1", 2),
        ("var a = 2; a * 21", 42),
        ("undefined", None),
        ("Promise.resolve({late: 1})", {"late": 1}),
        ("NaN", None),
        ("-0", 0),
        ("() => 1", None),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("({u: undefined, n: NaN, f() {}, d: new Date(0)})", {"n": None, "d": "1970-01-01T00:00:00.000Z"}),
        ("document.documentElement", {}),
        ("'\\ud800x'", "\ufffdx"),
        ("['\\ud800x', '\\ud83d\\ude00']", ["\ufffdx", "😀"]),
    ],
)
async def test_the_result_is_what_json_makes_of_the_value(tab: ChromiumTab, expression: str, value: Any) -> None:
    assert await evaluate(tab, expression) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("throw new TypeError('boom')", "TypeError: boom"),
        ("Promise.reject(new Error('later'))", "Error: later"),
        ("throw 'plain'", "plain"),
        ("throw undefined", "undefined"),
        ("throw Symbol('x')", "a symbol"),
        ("throw {get message() { throw 1 }}", "something that cannot be shown"),
        ("class Own extends Error { name = 'Own' }; throw new Own('mine')", "Own: mine"),
        ("this is no code", "SyntaxError: Unexpected identifier 'is'"),
        ("let c = {}; c.c = c; c", "TypeError: Converting circular structure to JSON"),
        ("({b: 1n})", "TypeError: Do not know how to serialize a BigInt"),
    ],
)
async def test_what_the_page_throws_is_told_in_its_own_words(tab: ChromiumTab, expression: str, message: str) -> None:
    with pytest.raises(JavascriptError) as caught:
        await evaluate(tab, expression)
    assert caught.value.details["message"].startswith(message)


async def test_the_stack_of_an_error_is_in_the_details(tab: ChromiumTab) -> None:
    with pytest.raises(JavascriptError) as caught:
        await evaluate(tab, "(function inner() { throw new Error('boom') })()")
    assert "at inner" in caught.value.details["stack"]


@pytest.mark.parametrize(
    ("expression", "args", "line", "column"),
    [
        ("1;\n  nowhere.x", None, 2, 3),
        ("(a) =>\n a.b.c", [{}], 2, 6),
        ("async () => {\n\n throw new Error('later') }", [], 3, 8),
        ("let a = 1;\nlet b = ;", None, 2, 9),
        ("(a) => {\n  return a +;\n}", [1], 2, 13),
    ],
)
async def test_an_error_is_placed_in_the_callers_own_lines(
    tab: ChromiumTab, expression: str, args: list[Any] | None, line: int, column: int
) -> None:
    with pytest.raises(JavascriptError) as caught:
        await evaluate(tab, expression, args)
    details = caught.value.details
    assert (details["line"], details["column"]) == (line, column)
    assert f"expression:{line}:{column}" in details["stack"]
    assert "tabherd" not in details["stack"]


LONG = "'x'.repeat(12e6)"


@pytest.mark.parametrize(
    "expression",
    [LONG, f"[{LONG}]", f"String.prototype.slice = JSON.stringify = () => {LONG}; ({{}})"],
)
async def test_a_value_that_is_too_large_is_not_sent(tab: ChromiumTab, expression: str) -> None:
    with pytest.raises(JavascriptError) as caught:
        await evaluate(tab, expression)
    assert caught.value.details["reason"] == "too_large"
    assert caught.value.details["lengthChars"] >= 12_000_000


@pytest.mark.parametrize(
    "expression",
    [
        f"throw new Error({LONG})",
        f"Promise.reject({{[Symbol.toStringTag]: {LONG}, name: {LONG}, message: {LONG}, stack: {LONG}}})",
        f"Error.prepareStackTrace = () => {LONG}; nowhere.x",
    ],
)
async def test_what_is_told_of_a_large_error_is_short(tab: ChromiumTab, expression: str) -> None:
    with pytest.raises(JavascriptError) as caught:
        await evaluate(tab, expression)
    assert len(str(caught.value.to_wire())) < 100_000


async def test_what_one_evaluation_declares_is_in_nobodys_way(tab: ChromiumTab) -> None:
    assert [await evaluate(tab, f"const own = {number}; own") for number in (1, 2)] == [1, 2]


@pytest.mark.parametrize("policy", ["script-src 'none'", "script-src 'self'; require-trusted-types-for 'script'"])
async def test_a_page_that_forbids_scripts_can_be_asked(tab: ChromiumTab, policy: str) -> None:
    await show(tab, f'<meta http-equiv=Content-Security-Policy content="{policy}"><p>here')
    assert await evaluate(tab, "document.body.innerText") == "here"
    assert await evaluate(tab, "async (a) => a + 1", [1]) == 2


@pytest.mark.parametrize("expression", ["10n", "let d = []; for (let i = 0; i < 5000; i++) d = [d]; d"])
async def test_what_json_cannot_carry_is_an_error(tab: ChromiumTab, expression: str) -> None:
    with pytest.raises(JavascriptError):
        await evaluate(tab, expression)


@pytest.mark.parametrize(
    ("function", "args", "value"),
    [
        ("async (x) => ({x})", ["é\u2028'\"`${1}"], {"x": "é\u2028'\"`${1}"}),
        ("function (...all) { return all.length } // a comment", [1, 2, 3], 3),
        ("(o) => Object.keys(o)", [{"__proto__": 1, "b": 2}], ["__proto__", "b"]),
    ],
)
async def test_with_arguments_the_expression_is_a_function(
    tab: ChromiumTab, function: str, args: list[Any], value: Any
) -> None:
    assert await evaluate(tab, function, args) == value


async def test_arguments_for_what_is_no_function_are_an_error(tab: ChromiumTab) -> None:
    with pytest.raises(JavascriptError, match="is not a function"):
        await evaluate(tab, "5", [1])


async def test_half_a_surrogate_pair_in_a_page_cuts_nobody_off(browser: ChromiumBrowser, tab: ChromiumTab) -> None:
    await evaluate(tab, "void (document.title = '\\ud800 and more')")
    assert await evaluate(tab, "'\\udc00 and more'") == "\ufffd and more"
    assert not browser._connection.is_closed


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("Array(6e5).fill([])", [[]] * 600_000),
        ("Array(2e4).fill({a: 'b\\\\ud800', c: '\\\\'})", [{"a": "b\\ud800", "c": "\\"}] * 20_000),
        ("Array(4e3).fill(['\\ud800x', '\\\\\\udc00', '\\ud83d\\ude00'])", [["\ufffdx", "\\\ufffd", "😀"]] * 4_000),
    ],
)
async def test_a_long_value_is_handed_on_as_json_that_nobody_has_read(
    tab: ChromiumTab, expression: str, value: list[Any]
) -> None:
    got = await evaluate(tab, expression)
    assert isinstance(got, msgspec.Raw)
    assert json.loads(bytes(got)) == value


async def test_a_long_value_that_is_no_json_is_a_typed_error(tab: ChromiumTab) -> None:
    for made in ("'[' + '1,'.repeat(1e5)", "'['.repeat(1e5)", "'[\"\\\\ud800\",'.repeat(1e5)"):
        await evaluate(tab, f"void (JSON.stringify = () => {made})")
        with pytest.raises(JavascriptError):
            await evaluate(tab, "({})")


async def test_a_page_with_a_json_stringify_of_its_own_cannot_break_the_answer(tab: ChromiumTab) -> None:
    await evaluate(tab, "void (JSON.stringify = () => 'not json')")
    with pytest.raises(JavascriptError, match="makes no JSON"):
        await evaluate(tab, "({})")


async def test_a_page_that_navigates_meanwhile_is_a_typed_error(tab: ChromiumTab, site: Site) -> None:
    with pytest.raises(JavascriptError) as caught:
        await evaluate(tab, f"location.href = '{site.origin}/'; new Promise(() => {{}})")
    assert caught.value.details["reason"] == "navigated"


async def test_a_tab_closed_meanwhile_has_an_unknown_outcome_and_is_dead_afterwards(
    browser: ChromiumBrowser, own_tab: ChromiumTab
) -> None:
    waiting = asyncio.create_task(evaluate(own_tab, "new Promise(() => {})"))
    assert await evaluate(own_tab, "1") == 1
    await browser.close_tab(own_tab.target_id)
    with pytest.raises(TabGone) as during:
        await waiting
    assert during.value.was_sent
    with pytest.raises(TabGone) as after:
        await evaluate(own_tab, "1")
    assert not after.value.was_sent


async def test_a_page_that_crashes_meanwhile_has_an_unknown_outcome(own_tab: ChromiumTab) -> None:
    waiting = asyncio.create_task(evaluate(own_tab, "new Promise(() => {})"))
    assert await evaluate(own_tab, "1") == 1
    own_tab.post("Page.crash")
    with pytest.raises(TabGone, match="crashed"):
        await waiting


async def test_a_cancelled_evaluation_leaves_no_call_behind(browser: ChromiumBrowser, tab: ChromiumTab) -> None:
    before = browser._connection.calls_waiting
    waiting = asyncio.create_task(evaluate(tab, "new Promise(() => {})"))
    assert await evaluate(tab, "1") == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert browser._connection.calls_waiting == before
