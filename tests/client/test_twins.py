"""Both flavours are alike in everything but `await`, and what is written from the other is up to date."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tabherd.client import (
    AsyncLock,
    AsyncSession,
    AsyncTab,
    AsyncTabherd,
    AsyncTask,
    Lock,
    Session,
    Tab,
    Tabherd,
    Task,
)
from tabherd.client.aio import AsyncTabLock
from tabherd.client.sync import TabLock

ROOT = Path(__file__).parents[2]
PAIRS = [
    (AsyncTabherd, Tabherd),
    (AsyncSession, Session),
    (AsyncTab, Tab),
    (AsyncTabLock, TabLock),
    (AsyncTask, Task),
    (AsyncLock, Lock),
]
SPELT = {"__aenter__": "__enter__", "__aexit__": "__exit__"}


def public(kind: type) -> dict[str, Any]:
    """What its users see, by its name in the synchronous flavour."""
    members = {SPELT.get(name, name): member for name, member in vars(kind).items()}
    return {name: member for name, member in members.items() if not name.startswith("_") or name in SPELT.values()}


def parameters(member: Any) -> list[tuple[str, Any, str]]:
    """Names, defaults and types, with the latter as the synchronous flavour spells them."""
    if isinstance(member, property):
        return [("property", None, str(inspect.signature(member.fget).return_annotation).replace("Async", ""))]
    taken = inspect.signature(member).parameters.values()
    return [(each.name, each.default, str(each.annotation).replace("Async", "")) for each in taken]


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_flavours_have_the_same_names_with_the_same_parameters(asynchronous: type, synchronous: type) -> None:
    ours, theirs = public(asynchronous), public(synchronous)
    assert list(ours) == list(theirs)
    wanted = {name: parameters(member) for name, member in ours.items()}
    assert wanted == {name: parameters(member) for name, member in theirs.items()}
    assert parameters(asynchronous) == parameters(synchronous)


@pytest.mark.parametrize("kind", [each for pair in PAIRS for each in pair], ids=lambda kind: kind.__name__)
def test_everything_that_users_see_is_explained(kind: type) -> None:
    plain = {"id", "agent", "fence", "__enter__", "__exit__"}
    silent = [name for name, member in public(kind).items() if not member.__doc__ and name not in plain]
    assert silent == []


def test_nothing_of_the_synchronous_flavour_is_asynchronous() -> None:
    for _, kind in PAIRS:
        for name, member in vars(kind).items():
            assert not inspect.iscoroutinefunction(member), name
            assert not inspect.isasyncgenfunction(member), name


def test_the_synchronous_flavour_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "tools/twin.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_flavour_that_was_changed_by_hand_is_named(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    for part in ("tools/twin.py", "pyproject.toml"):
        (copy / part).parent.mkdir(parents=True, exist_ok=True)
        (copy / part).write_bytes((ROOT / part).read_bytes())
    for flavour in ("aio", "sync"):
        (copy / "src/tabherd/client" / flavour).mkdir(parents=True)
    (copy / "src/tabherd/client/aio/tab.py").write_text(
        '"""A tab."""\n\n\nasync def click() -> None:\n    return None\n'
    )
    twin = [sys.executable, "tools/twin.py"]
    subprocess.run(twin, cwd=copy, check=True, capture_output=True, timeout=60)
    written = copy / "src/tabherd/client/sync/tab.py"
    assert "\ndef click() -> None:\n" in written.read_text()
    written.write_text(written.read_text().replace("click", "press"))
    done = subprocess.run([*twin, "--check"], cwd=copy, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "src/tabherd/client/sync/tab.py is stale; run 'make docs'.\n")
    assert "press" in written.read_text()
