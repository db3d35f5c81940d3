"""What people write instead of a selector, and what they are told."""

from __future__ import annotations

import pytest

from tabherd.actions.mistakes import corrected_role, correction, misreading
from tabherd.actions.selectors import parse


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("text:Save", "text=Save"),
        ("role: button", "role=button"),
        ('text("Save")', "text=Save"),
        ("getByRole('button', { name: 'Save' })", 'role=button[name="Save"]'),
        ("page.getByRole('link')", "role=link"),
        ('page.get_by_role("button", name="Save")', 'role=button[name="Save"]'),
        ("getByText('Sign in')", "text=Sign in"),
        ("getByLabel('E-mail')", 'role=textbox[name="E-mail"]'),
        ("getByPlaceholder('Search')", '[placeholder="Search"]'),
        ("getByTestId('save')", '[data-testid="save"]'),
        ("page.locator('#save')", "#save"),
        ("document.querySelector('#save')", "#save"),
        ("document.getElementById('save')", "#save"),
        ("$('#save')", "#save"),
        ('button:has-text("Save")', "button >> text=Save"),
        ("button:contains('Save')", "button >> text=Save"),
        (":text('Save')", "text=Save"),
        ("button:visible", "button"),
        ("li:eq(2)", "li >> nth=2"),
        ("li:nth(2)", "li >> nth=2"),
        ("li:first", "li >> nth=0"),
        ("li:last", "li >> nth=-1"),
        ("internal:role=button[name='Save']", "role=button[name='Save']"),
        ("id=save", "#save"),
        ("name=q", '[name="q"]'),
        ("class=big red", ".big.red"),
        ("data-testid=save", '[data-testid="save"]'),
        ("label=E-mail", 'role=textbox[name="E-mail"]'),
        ('<button id="save">Save</button>', "button#save"),
        ("<button>Save</button>", "button >> text=Save"),
    ],
)
def test_another_tools_way_to_name_an_element_is_told_in_ours(written: str, meant: str) -> None:
    assert correction(written) == meant
    parse(meant)


@pytest.mark.parametrize("written", ["##", "a[", "p:nope", "", "(" * 400, ":has-text(" * 100])
def test_what_is_like_nothing_known_has_no_correction(written: str) -> None:
    assert correction(written) is None


@pytest.mark.parametrize(
    "body", ["button Save", "button, name=Save", "button name='Save'", "button: Save", "button[name= Save ]"]
)
def test_a_role_with_a_name_beside_it_is_corrected(body: str) -> None:
    assert corrected_role(body) == 'role=button[name="Save"]'


def test_a_role_that_is_no_such_thing_is_not_corrected() -> None:
    assert corrected_role("button[") is None


def test_words_that_were_read_as_css_are_a_text_or_a_ref() -> None:
    assert "text=Sign in" in misreading("Sign in")
    assert "ref=kqa12" in misreading("kqa12")
