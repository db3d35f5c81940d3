"""The client brings nothing of the server along, needs two libraries only, and is typed for those who use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tabherd

SERVERS_OWN = ("starlette", "uvicorn", "picows", "structlog", "prometheus_client", "typer", "sqlite3", "psutil")
SERVERS_PARTS = ("core", "store", "browsers", "actions", "broker", "edge", "cli", "mcp", "metrics", "logs")

# The two, and what they need themselves.
INSTALLED = (
    "tabherd",
    "msgspec",
    "httpx",
    "httpcore",
    "h11",
    "anyio",
    "sniffio",
    "idna",
    "certifi",
    "typing_extensions",
)

ONLY_TWO = f"""
import importlib.metadata, sys

others = set(importlib.metadata.packages_distributions()) - set({INSTALLED!r})

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(name + " is not installed here", name=name)

sys.meta_path.insert(0, Refuse())
assert "starlette" in others and "httpx" not in others
from tabherd import AsyncTabherd, Tabherd
Tabherd("http://127.0.0.1:1", environ=dict()).close()
"""

USE = """
import asyncio

from tabherd import AsyncTabherd, Tabherd, TabherdError
from tabherd.errors import Capacity


def plain() -> list[str]:
    with Tabherd() as herd, herd.session(agent="alice", access="shared") as session:
        reveal_type(session.tab.snapshot())
        session.tab.click("text=Go", modifiers=["Shift"], timeout_ms=500)
        reveal_type(herd.health().status)
        for event in herd.events():
            reveal_type(event.type)
        try:
            picture: bytes = session.tab.screenshot()
        except Capacity as error:
            print(error.retry_after_ms, len(picture))
        return [file.name for file in session.files()]


async def later() -> None:
    async with AsyncTabherd() as herd, herd.session() as session:
        text: str = await session.tab.text()
        async for event in herd.events():
            print(event.id, text)
        async with session.tab.lock():
            await session.tab.goto("x", wait_untl="load")


try:
    asyncio.run(later())
except TabherdError:
    plain()
"""


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_the_package_alone_imports_no_client_and_the_client_nothing_of_the_server() -> None:
    both = "from tabherd.client import AsyncTabherd, Tabherd"
    code = f"import sys, tabherd; print(*sys.modules); {both}; print(*sys.modules)"
    alone, loaded = (set(line.split()) for line in run("-c", code).stdout.splitlines())
    assert {"httpx", "tabherd.client"} & alone == set()
    assert "tabherd.client.sync.herd" in loaded
    assert loaded & {*SERVERS_OWN, *(f"tabherd.{part}" for part in SERVERS_PARTS)} == set()


def test_the_client_works_where_only_its_two_libraries_are_installed() -> None:
    done = run("-c", ONLY_TWO)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_there_and_no_other() -> None:
    for name in tabherd.__all__:
        assert getattr(tabherd, name) is not None
    assert {"Tabherd", "AsyncTabherd", "Session", "AsyncSession", "Tab", "AsyncTab", "Task"} <= set(tabherd.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Tabhert'"):
        _ = tabherd.Tabhert


@pytest.mark.release
def test_users_see_the_types(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    root = Path(__file__).parents[2]
    cache = ["--cache-dir", str(root / ".mypy_cache" / "use")]
    done = run("-m", "mypy", "--strict", *cache, str(tmp_path / "use.py"), cwd=tmp_path)
    said = [line.partition(" ")[2] for line in done.stdout.splitlines() if "use.py" in line]
    assert [line for line in said if "Revealed" in line] == ['note: Revealed type is "str"'] * 3
    (error,) = [line for line in said if "error" in line]
    assert 'Unexpected keyword argument "wait_untl" for "goto"' in error
