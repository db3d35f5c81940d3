"""Snapshots made short."""

from __future__ import annotations

from tabherd.mcp.digest import CHARS_MAX, CLIP, digest


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


def test_long_texts_are_clipped_and_every_ref_of_the_line_stays() -> None:
    long = f'- link "{"x" * 500}" [ref=a1] "{"z" * 500}" button "Add" [ref=a2] value="{"y" * 500}"'
    lines = digest(f'{long}\ntext "t"', 500).splitlines()
    assert len(lines[0]) < 400
    assert " [ref=a1] " in lines[0]
    assert ' button "Add" [ref=a2] ' in lines[0]


def test_a_text_is_not_clipped_in_the_middle_of_an_escape() -> None:
    assert digest(f'text "{"x" * (CLIP - 1)}{chr(92)}"{"y" * 500}"', 300).startswith(f'text "{"x" * (CLIP - 1)}…"')


def test_however_long_a_page_is_its_digest_is_not() -> None:
    page = "\n".join(f'link "number {number} of very many" [ref=a{number}]' for number in range(10_000))
    assert len(digest(page)) <= CHARS_MAX + 200
