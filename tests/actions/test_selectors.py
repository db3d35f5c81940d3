"""Reading selectors."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd import wire
from tabherd.actions.selectors import PARTS_MAX, named_target, parse, parse_ref, target_of
from tabherd.errors import InvalidRequest, InvalidSelector


@pytest.mark.parametrize(
    ("selector", "parts"),
    [
        ("button.save > i", [("css", "button.save > i")]),
        ("css=a", [("css", "a")]),
        ("  #x  ", [("css", "#x")]),
        ("//td[2]", [("xpath", "//td[2]")]),
        ("xpath=..", [("xpath", "..")]),
        ("text=Sign in", [("text", "Sign in")]),
        ("TEXT = Sign in", [("text", "Sign in")]),
        ("iframe#a >> button", [("css", "iframe#a"), ("css", "button")]),
        ("a>>text=b>>c", [("css", "a"), ("text", "b"), ("css", "c")]),
        ("a[title='x >> y'] >> b", [("css", "a[title='x >> y']"), ("css", "b")]),
        ("text=don't >> b", [("text", "don't"), ("css", "b")]),
        (r'a[title="\">>"] >> b', [("css", r'a[title="\">>"]'), ("css", "b")]),
    ],
)
def test_a_selector_is_read_part_by_part(selector: str, parts: list[tuple[str, str]]) -> None:
    assert [(part["by"], part["body"]) for part in parse(selector)] == parts


@pytest.mark.parametrize(("selector", "body"), [('text="Save"', "Save"), ("text='Save'", "Save")])
def test_quoted_text_is_exact(selector: str, body: str) -> None:
    assert parse(selector) == [{"by": "text", "body": body, "isExact": True}]


@pytest.mark.parametrize("selector", ["text=Save", "text='Save", "text='"])
def test_text_without_both_quotes_is_not_exact(selector: str) -> None:
    assert parse(selector)[0]["isExact"] is False


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("role=button", {"role": "button", "name": None, "states": {}}),
        ('role=button[name="Save"]', {"name": "Save", "isPartial": False, "isFolded": False}),
        ("role=button[name='Save' i]", {"name": "Save", "isFolded": True}),
        ('role=button[name*="av"]', {"name": "av", "isPartial": True}),
        (r'role=link[name="a \"b\" ]c"]', {"name": 'a "b" ]c'}),
        ("role=checkbox[checked]", {"states": {"checked": "true"}}),
        ("role=heading[level=2][name=Top]", {"states": {"level": "2"}, "name": "Top"}),
        ("role=checkbox[checked=mixed][disabled=false]", {"states": {"checked": "mixed", "disabled": "false"}}),
    ],
)
def test_a_role_has_a_name_and_states(selector: str, wanted: dict[str, Any]) -> None:
    part = parse(selector)[0]
    assert {name: part[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    "selector",
    [
        *("text=", ">> a", "a >>", "a >> >> b", "  ", "role=", "role=[name=x]", "role=button[", "role=button[nope=1]"),
        *(
            "role=button x",
            "role=button[name]",
            "role=heading[level]",
            'role=button[name="x]',
            "role=button[checked*=t]",
        ),
    ],
)
def test_what_cannot_be_read_is_invalid(selector: str) -> None:
    with pytest.raises(InvalidSelector):
        parse(selector)


def test_a_bad_role_says_where_reading_stopped() -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse("role=button[nope=1]")
    assert caught.value.details["position"] == len("button")


def test_the_number_of_parts_is_bounded() -> None:
    parse(" >> ".join(["a"] * PARTS_MAX))
    with pytest.raises(InvalidSelector):
        parse(" >> ".join(["a"] * (PARTS_MAX + 1)))


def test_a_ref_names_the_frames_it_is_in() -> None:
    assert parse_ref("abc1.xyz22") == [{"by": "ref", "body": "abc1"}, {"by": "ref", "body": "xyz22"}]


@pytest.mark.parametrize("ref", ["1", "abc", "abc1.", "ABC1", "abc1 >> x", "e1e2"])
def test_what_no_snapshot_shows_is_no_ref(ref: str) -> None:
    with pytest.raises(InvalidSelector):
        parse_ref(ref)


def test_selector_and_ref_exclude_each_other() -> None:
    with pytest.raises(InvalidRequest):
        target_of(wire.Click(selector="a", ref="abc1"))


def test_an_action_that_needs_an_element_says_so() -> None:
    assert target_of(wire.Text()) is None
    with pytest.raises(InvalidRequest) as caught:
        named_target(wire.Click())
    assert caught.value.details["field"] == "selector"
