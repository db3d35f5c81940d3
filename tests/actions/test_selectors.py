"""Reading selectors."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd import wire
from tabherd.actions.selectors import LABEL_MAX, PARTS_MAX, label_of, named_target, parse, parse_ref, target_of, text_of
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
        ("/html/body/p", [("xpath", "/html/body/p")]),
        ("(//td)[2]", [("xpath", "(//td)[2]")]),
        ("ref=kqa2", [("ref", "kqa2")]),
        ("ref=kqa2.xyz1 >> text=Go", [("ref", "kqa2"), ("ref", "xyz1"), ("text", "Go")]),
        ('button "Save" [ref=kqa2] [disabled]', [("ref", "kqa2")]),
        ("- button [ref=kqa2.xyz1]", [("ref", "kqa2"), ("ref", "xyz1")]),
        ("[ref=kqa2]", [("ref", "kqa2")]),
        ("a[ref=top]", [("css", "a[ref=top]")]),
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
        ('role=button "Save"', {"role": "button", "name": "Save", "isPartial": False}),
        ('button "Save \\"it\\""', {"by": "role", "role": "button", "name": 'Save "it"'}),
        ('- heading "Top":', {"by": "role", "role": "heading", "name": "Top"}),
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


@pytest.mark.parametrize("selector", ["role=button Save", "role=button, name='Save'", "role=button name=Save"])
def test_a_name_in_the_wrong_place_is_shown_in_the_right_one(selector: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse(selector)
    assert caught.value.action == 'Write it like role=button[name="Save"]'


def test_what_is_counted_is_a_part_of_its_own() -> None:
    assert parse("li >> nth=-1")[1] == {"by": "nth", "index": -1}


@pytest.mark.parametrize("selector", ["nth=1", "li >> nth=x", "li >> nth=1.5"])
def test_counting_needs_a_number_and_something_to_count(selector: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse(selector)
    assert "button >> nth=1" in caught.value.action


@pytest.mark.parametrize(
    "written",
    ["text=Save", 'text="Save"', 'role=button[name="Save"]', 'role=button[name*="Sa"]', "ref=abc1", "#x", "a >> nth=1"],
)
def test_a_part_is_written_as_it_was_read(written: str) -> None:
    assert " >> ".join(text_of(part) for part in parse(written)) == written


def test_a_long_selector_is_cut_in_messages() -> None:
    assert len(label_of(wire.Click(selector="x" * 5_000))) < 2 * LABEL_MAX
    assert len(text_of(parse("text=" + "x" * 5_000)[0])) <= LABEL_MAX


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
