"""The page of benchmarks has a place for each of them, and only a run writes into it."""

from __future__ import annotations

import pkgutil
import re

import bench
import pytest
from bench import Figure
from bench.rig.machine import Machine
from bench.rig.page import PAGE, marked, section, with_figures

NAMES = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if not m.ispkg and not m.name.startswith("_"))
MACHINE = Machine(
    processor="Abacus",
    cores=2,
    memory_gib=24,
    kernel="Linux 6.1",
    python="3.11",
    chromium="Chromium 156",
    tabherd="0.1",
    load=0.1,
)


def test_every_benchmark_has_its_place_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in NAMES:
        assert f"\n## {name}\n" in page
        assert with_figures(page, name, "\nmeasured\n") != page


def test_every_place_on_the_page_belongs_to_a_benchmark() -> None:
    found = re.findall(r"<!-- figures of (\w+) -->", PAGE.read_text(encoding="utf-8"))
    assert sorted(found) == NAMES


def test_figures_replace_those_of_the_run_before_and_nothing_else() -> None:
    begin, end = marked("acquire")
    page = f"Before.\n{begin}\nold\n{end}\nAfter.\n"
    assert with_figures(page, "acquire", "\nnew\n") == f"Before.\n{begin}\n\nnew\n{end}\nAfter.\n"


def test_a_page_without_a_place_for_the_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="figures of acquire"):
        with_figures("Nothing here.\n", "acquire", "new\n")


def test_a_section_names_the_command_the_day_the_machine_and_a_bar_that_was_missed() -> None:
    figure = Figure(ours=12.5, unit="ms", others={"direct": 50.0}, at_most=10.0, spread=(11.0, 14.0))
    written = section("acquire", {"warm_open_p50": figure}, MACHINE, "2026-01-02")
    assert "`make bench NAME=acquire`, 2026-01-02. 2 cores of Abacus, 24 GiB" in written
    assert "| `warm_open_p50` | 12.5 ms | 11 to 14 | <= 10 **missed** | direct 50 |" in written
