"""The table of tools as models see it: what may change here changes what models do."""

from __future__ import annotations

import re

from tabherd.mcp.parameters import schema_of
from tabherd.mcp.server import LISTED
from tabherd.mcp.tools import TOOLS

ON_TAB = "sessionId tabId"
ON_ELEMENT = f"{ON_TAB} timeoutMs ref selector"
DIALOGS = "dialogs promptText"
# Each tool's arguments; those it cannot do without are marked.
ARGUMENTS = {
    "browser_lease": "url pool key tier waitMs sessionId",
    "browser_navigate": f"{ON_TAB} timeoutMs url! waitUntil",
    "browser_snapshot": f"{ON_ELEMENT} interactive full",
    "browser_click": f"{ON_ELEMENT} button double modifiers {DIALOGS}",
    "browser_type": f"{ON_ELEMENT} text!",
    "browser_fill": f"{ON_ELEMENT} value!",
    "browser_press": f"{ON_ELEMENT} key! {DIALOGS}",
    "browser_select": f"{ON_ELEMENT} values!",
    "browser_drag": f"{ON_TAB} timeoutMs from! to!",
    "browser_upload": f"{ON_ELEMENT} files!",
    "browser_wait": f"{ON_ELEMENT} text url ms function state",
    "browser_evaluate": f"{ON_TAB} timeoutMs expression! args {DIALOGS}",
    "browser_screenshot": f"{ON_ELEMENT} fullPage",
    "browser_pdf": f"{ON_TAB} timeoutMs landscape background pages",
    "browser_files": "sessionId name",
    "browser_tabs": f"{ON_TAB} action url",
    "browser_release": "sessionId",
    "browser_who_holds": ON_TAB,
    "browser_handoff": f"{ON_TAB} by resume",
    "browser_submit_task": "action params steps tabId priority deadlineMs idempotent",
    "browser_task": "taskId! waitMs cancel",
}
READING = {"browser_snapshot", "browser_wait", "browser_screenshot", "browser_files", "browser_who_holds"}
# Read by a model before it has done anything.
LISTING_CHARS_MAX = 15_200


def test_exactly_these_tools_are_there() -> None:
    assert [*TOOLS] == [*ARGUMENTS]


def test_a_tool_takes_exactly_these_arguments() -> None:
    for name, arguments in ARGUMENTS.items():
        schema = schema_of(TOOLS[name].parameters)
        required = schema.get("required", [])
        said = " ".join(f"{each}!" if each in required else each for each in schema["properties"])
        assert (name, said) == (name, arguments)


def test_a_description_is_one_or_two_short_sentences() -> None:
    said = [tool.description for tool in TOOLS.values()]
    assert [each for each in said if not re.fullmatch(r"[A-Z].{10,118}\.", each)] == []


def test_what_only_reads_says_so() -> None:
    assert {tool.name for tool in LISTED.tools if tool.annotations and tool.annotations.read_only_hint} == READING


def test_the_whole_listing_is_short_enough_to_be_carried_along() -> None:
    assert len(LISTED.model_dump_json(by_alias=True, exclude_none=True)) <= LISTING_CHARS_MAX
