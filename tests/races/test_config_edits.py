"""H6: two changes of one configuration file, through tabherd's own editing, in one process and in two.

Between the last look at the file and its replacement there is no third look: only the lock on the file beside it keeps
two writers from replacing what the other has just written.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.locks.company import LIMIT_S, program, says, until
from tests.races.scene import with_and_without

from tabherd import config_file, wire
from tabherd.broker.events import EventBus
from tabherd.broker.settings import Settings
from tabherd.config_layers import layers_of
from tabherd.edge.reload import Reload


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tabherd.toml"
    path.write_text("# Ours.\n[gate]\ntimeout_ms = 30000\n", encoding="utf-8")
    return path


def server(file: Path) -> Reload:
    """What a server has of its configuration."""
    layers = layers_of(file, {})
    return Reload(Settings(layers.read()), layers, EventBus(epoch=1, ring=10))


class Crossroads:
    """Where two threads meet after each look at the file, unless one of them stands before its lock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._looks: dict[int, int] = {}
        self._is_awaited = threading.Event()
        self._read = config_file._content
        monkeypatch.setattr(config_file, "_content", self._look)
        # Nobody pauses there but who finds the lock taken.
        monkeypatch.setattr(config_file, "time", SimpleNamespace(monotonic=time.monotonic, sleep=self._pause))

    def _look(self, path: Path) -> bytes | None:
        content = self._read(path)
        me = threading.get_ident()
        mine = self._looks[me] = self._looks.get(me, 0) + 1
        until(lambda: self._is_awaited.is_set() or [looks >= mine for looks in self._looks.values()] == [True, True])
        return content

    def _pause(self, pause_s: float) -> None:
        self._is_awaited.set()
        time.sleep(pause_s)


@with_and_without
async def test_h6_two_servers_change_one_configuration_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    monkeypatch.setattr(config_file, "LOCK_LIMIT_S", LIMIT_S)
    servers = server(file), server(file)
    if not is_guarded:
        monkeypatch.setattr(config_file, "_locked", lambda path, limit_s: nullcontext())
    Crossroads(monkeypatch)
    patches: list[dict[str, Any]] = [{"gate": {"timeout_ms": 5_000}}, {"scheduler": {"result_ttl_s": 600}}]
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(
            *(each.patch(wire.ConfigPatch(**patch)) for each, patch in zip(servers, patches, strict=True))
        )
    text = file.read_text("utf-8")
    said = tomllib.loads(text)
    kept = [said["gate"]["timeout_ms"] == 5_000, "scheduler" in said]
    # Both were told that their change is in force.
    assert sorted(kept) == ([True, True] if is_guarded else [False, True])
    assert text.startswith("# Ours.\n")


# Changes one setting, and has a word with the test after each look at the file and when it finds the lock taken.
EDITOR: Final = """
import sys, time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from tabherd import config_file
from tabherd.toml_edit import edited

path, section, key, guard = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
read, is_told = config_file._content, []

def look(path):
    content = read(path)
    print("looked", flush=True)
    sys.stdin.readline()
    return content

def pause(pause_s):
    if not is_told:
        is_told.append(print("waits", flush=True))
    time.sleep(pause_s)

config_file._content = look
config_file.time = SimpleNamespace(monotonic=time.monotonic, sleep=pause)
if guard == "none":
    config_file._locked = lambda path, limit_s: nullcontext()
config_file.rewrite(path, lambda old: edited(old.decode(), {section: {key: 600}}).encode(), lock_limit_s=60)
print("done", flush=True)
"""


def go_on(editor: subprocess.Popen[str], *words: str) -> None:
    """Have it go on, and again after each of these words."""
    assert editor.stdin is not None
    editor.stdin.write("go on\n" * max(1, len(words)))
    editor.stdin.flush()
    assert [says(editor) for _ in words] == list(words)


@with_and_without
def test_h6_two_processes_change_one_configuration_file(file: Path, is_guarded: bool) -> None:
    guard = "lock" if is_guarded else "none"
    with (
        program(EDITOR, str(file), "gate", "timeout_ms", guard) as first,
        program(EDITOR, str(file), "scheduler", "result_ttl_s", guard) as second,
    ):
        editors = [first, second]
        words = [says(editor) for editor in editors]
        if is_guarded:
            assert sorted(words) == ["looked", "waits"]
            ahead, behind = editors if words[0] == "looked" else reversed(editors)
            go_on(ahead, "looked", "done")
            # Only now does the other one look at all.
            assert says(behind) == "looked"
            go_on(behind, "looked", "done")
        else:
            assert words == ["looked", "looked"]
            # At its second look, neither finds that the other has changed anything yet.
            for word in ("looked", "done"):
                for editor in editors:
                    go_on(editor)
                assert [says(editor) for editor in editors] == [word, word]
    said = tomllib.loads(file.read_text("utf-8"))
    kept = [said["gate"]["timeout_ms"] == 600, "scheduler" in said]
    assert sorted(kept) == ([True, True] if is_guarded else [False, True])
