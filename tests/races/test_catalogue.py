"""The page of races has all of them, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "races.md").read_text(encoding="utf-8")
IDS: Final = [f"{kind}{n + 1}" for kind, count in {"C": 3, "H": 8, "M": 9, "L": 6}.items() for n in range(count)]
ROWS: Final = {cells[0]: cells for cells in re.findall(r"^\| (\w\d) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)}
# Those that have no counterpart here, or whose guard is shown by the test of another one.
WITHOUT_A_TEST_OF_ITS_OWN: Final = {"H5", "M3", "M4", "M6", "L1", "L2", "L3", "L4", "L5"}
NAMED: Final = re.findall(r"`([\w/]+\.py)(?:::(test_\w+))?`", PAGE)


def names_in(path: Path) -> list[str]:
    return re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_race_is_on_the_page_once_and_in_order() -> None:
    assert re.findall(r"^\| (\w\d) \|", PAGE, re.MULTILINE) == IDS
    assert list(ROWS) == IDS


def test_the_page_says_which_races_have_no_test_of_their_own() -> None:
    (said,) = re.findall(r"have no such test: (.+?)\.\n", PAGE, re.DOTALL)
    assert set(re.findall(r"\b[CHML]\d\b", said)) == WITHOUT_A_TEST_OF_ITS_OWN


@pytest.mark.parametrize("id", [id for id in IDS if id not in WITHOUT_A_TEST_OF_ITS_OWN])
def test_a_race_with_a_counterpart_has_a_test_of_its_name(id: str) -> None:
    *_, tests = ROWS[id]
    assert re.search(rf"::test_{id.lower()}_\w+`", tests)


@pytest.mark.parametrize(("path", "test"), NAMED)
def test_every_test_that_is_named_exists(path: str, test: str) -> None:
    assert (ROOT / path).is_file()
    assert not test or test in names_in(ROOT / path)


def test_every_test_of_a_race_is_named() -> None:
    here = Path(__file__).parent
    races = {test for path in here.glob("test_*.py") for test in names_in(path) if re.match(r"test_[chml]\d_", test)}
    assert races == {test for _, test in NAMED if re.match(r"test_[chml]\d_", test)}
