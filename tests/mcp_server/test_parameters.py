"""What a model may send to a tool, and what it is told when that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd import wire
from tabherd.errors import InvalidRequest, UnknownField
from tabherd.mcp import parameters as p
from tabherd.mcp.parameters import read, schema_of


def test_arguments_are_spelt_as_on_the_wire() -> None:
    assert read({"tabId": "tab_1", "timeoutMs": 500, "ref": "a1"}, p.Click) == p.Click(
        tab_id="tab_1", timeout_ms=500, ref="a1"
    )


def test_no_arguments_at_all_are_none_given() -> None:
    assert read(None, p.OnTab) == p.OnTab()


def test_numbers_that_come_as_text_are_taken() -> None:
    assert read({"ms": "250"}, p.Wait).ms == 250


@pytest.mark.parametrize(
    ("arguments", "kind", "field", "message"),
    [
        ({}, p.Navigate, "url", "The argument 'url' is missing."),
        ({"ms": -1}, p.Wait, "ms", "ms: Expected `int` >= 0."),
        ({"action": "open"}, p.Tabs, "action", "action: Invalid enum value 'open'; there are: close, list, new."),
        (
            {"modifiers": ["Ctrl"]},
            p.Click,
            "modifiers[0]",
            "modifiers[0]: Invalid enum value 'Ctrl'; there are: Alt, Control, Meta, Shift.",
        ),
        ({"values": "S"}, p.Select, "values", "values: Expected `array`, got `str`."),
        ({"url": 7}, p.Navigate, "url", "url: Expected `str`, got `int`."),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: dict[str, Any], kind: type[p.Parameters], field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(arguments, kind)
    assert (refused.value.details["field"], refused.value.message) == (field, message)


def test_an_unknown_argument_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(UnknownField, match="did you mean 'tabId'") as refused:
        read({"tab_id": "tab_1"}, p.OnTab)
    assert refused.value.details == {"field": "tab_id", "known": ["sessionId", "tabId"]}


def test_a_schema_has_what_a_model_needs_and_nothing_else() -> None:
    assert schema_of(p.Tabs) == {
        "type": "object",
        "properties": {
            "sessionId": {"type": "string", "description": "Needed when there are several."},
            "tabId": {"type": "string", "description": "Needed when several tabs are open."},
            "action": {"enum": ["close", "list", "new"], "default": "list"},
            "url": {"type": "string", "description": "First page of a new tab."},
        },
        "additionalProperties": False,
    }


def test_what_is_needed_is_required() -> None:
    assert schema_of(p.Select)["required"] == ["values"]
    assert schema_of(p.Select)["properties"]["values"] == {
        "type": "array",
        "items": {"type": "string"},
        "description": "Values or labels.",
    }


def test_a_step_has_a_kind_and_what_the_actions_take() -> None:
    step = schema_of(p.SubmitTask)["properties"]["steps"]["items"]
    fields = step["properties"]
    assert (step["type"], step["required"], fields["kind"]["enum"]) == ("object", ["kind"], [*wire.ACTION_KINDS])
    assert fields["selector"] == {"type": "string"}
    assert fields["values"] == {"type": "array", "items": {"type": "string"}}
    # What has the same name in two actions is either.
    assert {"png", "A4"} <= {*fields["format"]["enum"]}
    assert "$ref" not in str(fields)
