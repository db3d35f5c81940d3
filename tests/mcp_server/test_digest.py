"""Snapshots made short."""

from __future__ import annotations

from tabherd.mcp.digest import CHARS_MAX, digest


def test_items_of_a_list_stand_without_their_wrappers() -> None:
    assert digest('list\n  listitem\n    link "A" [ref=a1]\n    text "x"\n  listitem\n    link "B" [ref=a2]\nmain') == (
        'list\n  link "A" [ref=a1]\n  text "x"\n  link "B" [ref=a2]\nmain'
    )


def test_wrappers_in_wrappers_go_too() -> None:
    assert digest("list\n  listitem\n    list\n      listitem\n        button [ref=a1]") == (
        "list\n  list\n    button [ref=a1]"
    )


def test_the_cells_of_a_row_share_its_line() -> None:
    assert digest('table\n  row\n    rowheader "W"\n    cell "1 | 2"\n  row\n    cell "3"\ntext "t"') == (
        'table\n  row "W" | "1 | 2"\n  row "3"\ntext "t"'
    )


def test_a_row_with_something_to_act_upon_stays_as_it_is() -> None:
    row = 'row\n  cell "A"\n  cell\n    link "B" [ref=a1]'
    assert digest(row) == row


def test_what_is_short_enough_is_all_there() -> None:
    text = "\n".join(f'text "{number}"' for number in range(50))
    assert digest(text) == text


def test_prose_gives_way_to_what_can_be_acted_upon() -> None:
    prose = [f'text "paragraph {number}"' for number in range(20)]
    links = [f'link "{number}" [ref=a{number}]' for number in range(10)]
    lines = digest("\n".join([*prose, 'heading "H" [level=1]', *links]), 400).splitlines()
    assert lines[-12:-1] == ['heading "H" [level=1]', *links]
    assert lines[0] == prose[0]
    assert lines[-1].startswith("... truncated: ")
    assert lines[-1].endswith("See a part with selector or ref, or all with full.")


def test_how_much_was_left_out_is_said() -> None:
    links = [f'link "{number}" [ref=a{number}]' for number in range(100)]
    shown = digest("\n".join(links), 200).splitlines()
    assert shown[-1].startswith(f"... truncated: {100 - len(shown) + 1} of 100 lines left out.")


def test_a_long_name_is_clipped_and_keeps_its_ref() -> None:
    lines = digest(f'link "{"x" * 500}" [ref=a1] value="{"y" * 500}"\ntext "{"z" * 500}"', 400).splitlines()
    assert [len(line) < 160 for line in lines[:2]] == [True, True]
    assert lines[0].endswith(" [ref=a1]")


def test_however_long_a_page_is_its_digest_is_not() -> None:
    page = "\n".join(f'link "number {number} of very many" [ref=a{number}]' for number in range(10_000))
    assert len(digest(page)) <= CHARS_MAX + 200
