"""Names of files: whatever is proposed comes out harmless, and no two files have the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd.broker.file_names import NAME_MAX_BYTES, clean_name, unique_name


@pytest.mark.parametrize(
    ("proposed", "name"),
    [
        ("bill.pdf", "bill.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ada\\bill.pdf", "bill.pdf"),
        ("folder/", "folder"),
        (".bashrc", "bashrc"),
        ("...", "file"),
        ("", "file"),
        ("/", "file"),
        ("  spaced .txt ", "spaced .txt"),
        ("line\nbreak\x00.txt", "line_break_.txt"),
        # It would be read as "exe.txt".
        ("cod\u202etxt.exe", "cod_txt.exe"),
        ("half\ud800.txt", "half_.txt"),
        ("Übersicht 2025.csv", "Übersicht 2025.csv"),
    ],
)
def test_what_is_proposed_is_made_harmless(proposed: str, name: str) -> None:
    assert clean_name(proposed) == name


def test_a_long_name_keeps_its_extension() -> None:
    name = clean_name("é" * 300 + ".csv")
    assert name.endswith("é.csv")
    assert len(name.encode()) <= NAME_MAX_BYTES


def test_an_absurd_extension_is_none() -> None:
    assert len(clean_name("a." + "b" * 400).encode()) <= NAME_MAX_BYTES


@given(st.text(max_size=400))
def test_no_text_makes_a_name_that_leads_elsewhere(proposed: str) -> None:
    name = clean_name(proposed)
    assert name
    assert name not in (".", "..")
    assert not name.startswith(".")
    assert not set(name) & set("/\\")
    assert not {unicodedata.category(letter) for letter in name} & {"Cc", "Cf", "Cs"}
    assert len(name.encode()) <= NAME_MAX_BYTES


@pytest.mark.parametrize(
    ("name", "taken", "unique"),
    [
        ("a.txt", set(), "a.txt"),
        ("a.txt", {"a.txt"}, "a (1).txt"),
        ("a.txt", {"a.txt", "a (1).txt"}, "a (2).txt"),
        ("archive.tar.gz", {"archive.tar.gz"}, "archive.tar (1).gz"),
        ("plain", {"plain"}, "plain (1)"),
    ],
)
def test_a_name_that_is_taken_gets_a_number(name: str, taken: set[str], unique: str) -> None:
    assert unique_name(name, taken) == unique
