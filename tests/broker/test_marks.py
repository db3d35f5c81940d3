"""Marks of running commands outlive the process that set them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tabherd.broker.marks import MARK_BYTES, MARKS_MAX, FileMarks

TAB = "tab_" + "0" * 22
COMMAND = "cmd_" + "0" * 27


def test_marks_that_were_not_cleared_are_found_by_every_later_life_until_one_clears_them(tmp_path: Path) -> None:
    marks = FileMarks(tmp_path / "marks")
    marks.set(TAB + "a", COMMAND + "a")
    cleared = marks.set(TAB + "b", COMMAND + "b")
    marks.clear(cleared)
    marks.close()
    assert list(FileMarks(tmp_path / "marks").left()) == [TAB + "a"]
    later = FileMarks(tmp_path / "marks")
    found = later.left()
    assert later.set(TAB + "c", COMMAND + "c") not in found.values()
    later.clear(found[TAB + "a"])
    assert list(FileMarks(tmp_path / "marks").left()) == [TAB + "c"]


def test_a_mark_survives_kill_9(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from tabherd.broker.marks import FileMarks;"
        f"FileMarks(Path(sys.argv[1])).set('{TAB}a', '{COMMAND}a'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", script, str(tmp_path / "marks")], check=False)
    assert died.returncode == -signal.SIGKILL
    assert list(FileMarks(tmp_path / "marks").left()) == [TAB + "a"]


def test_a_torn_mark_reads_as_none(tmp_path: Path) -> None:
    marks = FileMarks(tmp_path / "marks")
    marks.set(TAB + "a", COMMAND + "a")
    descriptor = os.open(tmp_path / "marks", os.O_RDWR)
    os.pwrite(descriptor, b"\0" * 20, 30)
    os.close(descriptor)
    assert FileMarks(tmp_path / "marks").left() == {}


def test_places_are_used_again(tmp_path: Path) -> None:
    marks = FileMarks(tmp_path / "marks")
    for _ in range(MARKS_MAX + 10):
        marks.clear(marks.set(TAB + "a", COMMAND + "a"))
    assert (tmp_path / "marks").stat().st_size == MARK_BYTES * MARKS_MAX
    assert marks.left() == {}
