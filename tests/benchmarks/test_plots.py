"""Plots are well-formed pictures that can be read without colours, and the page shows each that is kept."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import msgspec
import pytest
from bench.rig.machine import Machine
from bench.rig.page import PAGE, PLOTS, kept_plots, section
from bench.rig.plot import DISTRIBUTION_POINTS, Plot, distribution
from bench.rig.plot_svg import DASHES, SERIES_MAX, drawn

SVG = "{http://www.w3.org/2000/svg}"
LINES = Plot(
    title="Cost <of> waiting",
    x="tasks",
    y="us",
    series={f"series {n}": [(1.0, n + 1.0), (10.0, n + 2.0), (100.0, n + 4.0)] for n in range(SERIES_MAX)},
    is_log_x=True,
)
BARS = Plot(title="Shares", x="agent", y="sessions", series={"shares": [(1, 3), (2, 4)]}, kind="bars", bar=3.5)
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


@pytest.mark.parametrize("plot", [LINES, BARS], ids=["lines", "bars"])
def test_a_picture_is_well_formed_and_tells_its_title_to_those_who_do_not_see_it(plot: Plot) -> None:
    picture = ElementTree.fromstring(drawn(plot))
    title, words = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")
    assert title is not None
    assert title.text == plot.title
    assert words is not None
    assert all(name in (words.text or "") for name in plot.series)


@pytest.mark.parametrize("plot", [LINES, BARS], ids=["lines", "bars"])
def test_nothing_is_drawn_outside_of_the_picture(plot: Plot) -> None:
    picture = ElementTree.fromstring(drawn(plot))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    for each in picture.iter():
        for pair in each.attrib.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
        assert 0 <= float(each.attrib.get("x", 0)) <= width
        assert 0 <= float(each.attrib.get("y", 0)) <= height


def test_series_differ_without_their_colours() -> None:
    assert len(set(DASHES)) == SERIES_MAX
    picture = ElementTree.fromstring(drawn(LINES))
    assert len(picture.findall(f"{SVG}polyline")) == SERIES_MAX
    style = picture.findtext(f"{SVG}style") or ""
    for number, dashes in enumerate(DASHES):
        assert not dashes or f".s{number} {{ stroke: " in style.split("@media")[0]
        assert dashes in style


def test_every_colour_of_the_light_page_has_one_for_the_dark() -> None:
    light, dark = (ElementTree.fromstring(drawn(LINES)).findtext(f"{SVG}style") or "").split("@media")
    for number in range(SERIES_MAX):
        colours = [re.search(rf"\.s{number} {{ stroke: (#\w+)", part) for part in (light, dark)]
        assert all(colours)
        assert len({found[1] for found in colours if found}) == 2


def test_the_same_plot_gives_the_same_picture_also_after_it_was_kept() -> None:
    assert drawn(msgspec.json.decode(msgspec.json.encode(LINES), type=Plot)) == drawn(LINES)


def test_more_series_than_can_be_told_apart_are_refused() -> None:
    crowded = {f"series {n}": [(1.0, 1.0)] for n in range(SERIES_MAX + 1)}
    with pytest.raises(ValueError, match="told apart"):
        drawn(msgspec.structs.replace(LINES, series=crowded))


def test_a_series_without_points_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        drawn(msgspec.structs.replace(LINES, series={"nothing": []}))


def test_one_point_is_enough_for_a_picture() -> None:
    ElementTree.fromstring(drawn(msgspec.structs.replace(LINES, series={"one": [(5.0, 5.0)]})))


def test_a_distribution_begins_with_the_least_and_ends_with_the_most() -> None:
    found = distribution([float(n) for n in range(1_000, 0, -1)])
    assert found[0] == (1.0, 0.1)
    assert found[-1] == (1_000.0, 100.0)
    assert len(found) == DISTRIBUTION_POINTS + 1
    assert found == sorted(found)


def test_a_distribution_of_few_has_all_of_them() -> None:
    assert distribution([3.0, 1.0, 2.0]) == [(1.0, 33.33), (2.0, 66.67), (3.0, 100.0)]


def test_a_section_shows_its_plots() -> None:
    assert "(plots/shares.svg)" in section("crowd", {}, MACHINE, "2026-01-02", {"shares": BARS})


@pytest.mark.parametrize("name", sorted(kept_plots()))
def test_a_kept_plot_is_drawn_from_its_numbers_and_shown_on_the_page(name: str) -> None:
    picture = (PLOTS / f"{name}.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(picture)
    assert picture == drawn(kept_plots()[name])
    assert f"(plots/{name}.svg)" in PAGE.read_text(encoding="utf-8")


def test_every_picture_of_the_page_is_that_of_a_kept_plot() -> None:
    shown = re.findall(r"\(plots/(\w+)\.svg\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(kept_plots())
    assert sorted(each.stem for each in PLOTS.glob("*.svg")) == sorted(shown)
