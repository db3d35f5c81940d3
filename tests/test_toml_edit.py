"""Editing TOML in place: what is read afterwards is the merged tree, and what was not changed is untouched."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd import toml_edit
from tabherd.toml_edit import CannotEdit, edited, merged, rendered

FILE = """\
# Kept for the night shift.
store = "memory://"  # nothing survives

[server]
  # The office firewall opens this one.
  port = 7000    # agreed with Ann
drain_s = 5

[pools.default]
flags = [
  "--mute-audio",  # no sound
  '--lang=de',
]
pinned_hosts = { "a.test" = "10.0.0.1" }
"""


def test_a_changed_value_leaves_every_other_character_alone() -> None:
    assert edited(FILE, {"server": {"port": 8000}}) == FILE.replace("7000", "8000")


def test_a_list_over_several_lines_is_replaced_whole() -> None:
    text = edited(FILE, {"pools": {"default": {"flags": ["--x"]}}})
    assert 'flags = ["--x"]\npinned_hosts' in text


def test_a_new_key_goes_to_the_end_of_its_table() -> None:
    assert 'drain_s = 5\nhost = "::1"\n\n[pools' in edited(FILE, {"server": {"host": "::1"}})


def test_a_new_table_goes_to_the_end_of_the_file() -> None:
    assert edited(FILE, {"gate": {"timeout_ms": 1}}) == FILE + "\n[gate]\ntimeout_ms = 1\n"


def test_a_new_key_of_the_top_level_goes_before_the_first_table() -> None:
    assert edited("# mine\n[a]\nb = 1\n", {"store": "x"}) == '# mine\nstore = "x"\n\n[a]\nb = 1\n'


def test_an_empty_file_gets_its_first_table() -> None:
    assert edited("", {"a": {"b": True}}) == "[a]\nb = true\n"


def test_an_entry_of_an_inline_table_is_changed_within_it() -> None:
    text = edited(FILE, {"pools": {"default": {"pinned_hosts": {"b.test": "10.0.0.2"}}}})
    assert 'pinned_hosts = { "a.test" = "10.0.0.1", "b.test" = "10.0.0.2" }\n' in text


def test_nothing_to_change_changes_nothing() -> None:
    assert edited(FILE, {"server": {"port": 7000}, "gate": {"x": None}}) == FILE


def test_a_removed_key_takes_only_its_own_line_along() -> None:
    text = edited(FILE, {"server": {"port": None}})
    assert "  # The office firewall opens this one.\ndrain_s = 5\n" in text


def test_a_removed_table_takes_all_its_lines_along() -> None:
    assert "pools" not in edited(FILE, {"pools": None})


@pytest.mark.parametrize("patch", [{"a": {"b": None}}, {"a": {"b": {"c": None}}}])
def test_a_table_whose_last_key_goes_stays_a_table(patch: dict[str, Any]) -> None:
    text = edited("a.b.c = 1\n", patch)
    assert tomllib.loads(text) == merged({"a": {"b": {"c": 1}}}, patch)


def test_a_table_that_was_begun_with_dotted_keys_is_continued_with_those() -> None:
    assert edited("[a]\nb.c = 1\n", {"a": {"b": {"d": 2}}}) == "[a]\nb.c = 1\nb.d = 2\n"


def test_line_ends_and_a_missing_last_one_are_respected() -> None:
    assert edited("[a]\r\nb = 1", {"a": {"c": 2}}) == "[a]\r\nb = 1\r\nc = 2\r\n"


def test_a_whole_number_is_not_taken_for_a_truth_value() -> None:
    assert edited("a = 1\n", {"a": True}) == "a = true\n"


def test_what_is_no_table_of_ours_is_refused_and_not_rewritten() -> None:
    with pytest.raises(CannotEdit):
        edited("[[a]]\nb = 1\n", {"c": {"d": 1}})


def test_an_edit_that_would_say_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("server.port = 8\n", "["):
        monkeypatch.setattr(toml_edit, "_put", lambda text, path, value, wrong=wrong: wrong)
        with pytest.raises(CannotEdit):
            edited(FILE, {"server": {"port": 9}})


def test_a_value_that_toml_does_not_know_is_refused() -> None:
    with pytest.raises(CannotEdit):
        rendered([None])


def test_quotes_brackets_and_hashes_within_strings_are_no_syntax() -> None:
    text = '''a = "x # ] \\" ="  # c\nb = """\n[no]\n"q" = 1""""\n[t."= ]#"]\n'c=' = {"}" = ["#"]}\n'''
    text = edited(text, {"a": "y", "t": {"= ]#": {"d": 1}}})
    assert tomllib.loads(text) == {"a": "y", "b": '[no]\n"q" = 1"', "t": {"= ]#": {"c=": {"}": ["#"]}, "d": 1}}}
    assert 'a = "y"  # c\n' in text


# --- Any tree in any layout -------------------------------------------------------------------------------------

NAMES = st.text(max_size=4) | st.sampled_from(["a", "b", "c", "a.b"])
PLAIN = st.text() | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False) | st.lists(st.text())
TABLES = st.dictionaries(NAMES, PLAIN | st.dictionaries(NAMES, PLAIN, max_size=3), max_size=4)
TREES = st.dictionaries(NAMES, PLAIN | TABLES, max_size=4)
PATCHED = st.none() | PLAIN
PATCHES = st.dictionaries(
    NAMES,
    PATCHED | st.dictionaries(NAMES, PATCHED | st.dictionaries(NAMES, PATCHED, max_size=3), max_size=4),
    max_size=4,
)


def key(name: str) -> str:
    return rendered({name: 0})[2:-6]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A TOML file with tables in all the ways in which they can be written, and the comments in it."""
    tree = draw(TREES)
    comments: list[str] = []

    def comment() -> str:
        comments.append(f"# comment {len(comments)} = [")
        return comments[-1] + draw(st.sampled_from(["\n", "\r\n"]))

    def lines(table: dict[str, Any], header: str, dotted: str) -> tuple[list[str], list[str]]:
        """What stands in the table, and the tables behind it."""
        here, behind = [], []
        for name, value in table.items():
            style = draw(st.sampled_from(["inline", "dotted", "header"])) if isinstance(value, dict) else "inline"
            # Under dotted keys a header would begin a table again that exists already.
            if style == "inline" or not value or (style == "header" and dotted):
                here.append(f"{dotted}{key(name)} = {rendered(value)}\n")
            elif style == "dotted":
                inner, more = lines(value, header, f"{dotted}{key(name)}.")
                here, behind = [*here, *inner], [*behind, *more]
            else:
                title = f"{header}{key(name)}"
                inner, more = lines(value, f"{title}.", "")
                behind += [comment(), f"[{title}]\n", *inner, *more]
        return [each for line in here for each in (comment(), line)], behind

    here, behind = lines(tree, "", "")
    text = "".join([*here, *behind])
    assert tomllib.loads(text) == tree
    return text, [each for each in comments if each in text]


@given(layouts(), PATCHES)
def test_any_patch_of_any_file_gives_the_merged_tree_and_keeps_every_comment(
    layout: tuple[str, list[str]], patch: dict[str, Any]
) -> None:
    text, comments = layout
    changed = edited(text, patch)
    assert tomllib.loads(changed) == merged(tomllib.loads(text), patch)
    assert [each for each in comments if each not in changed] == []


@given(PLAIN | TABLES)
def test_any_value_is_read_as_it_was_written(value: Any) -> None:
    assert tomllib.loads(f"x = {rendered(value)}")["x"] == value
