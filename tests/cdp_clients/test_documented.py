"""What the page about CDP clients tells people to paste works, word for word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.conftest import Server

from .documented import DIRECTORY, NODE, PUPPETEER, example, surroundings

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.release]


def run(words: list[str], server: Server, cwd: Path) -> str:
    env = surroundings(server, server.token_of("ada"))
    done = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_python_example_of_playwright_prints_the_title(server: Server, tmp_path: Path) -> None:
    assert run([sys.executable, "-c", example("Playwright", "python")], server, tmp_path) == "Hello, herd\n"


def test_the_node_example_of_playwright_prints_the_title(server: Server) -> None:
    words = [str(NODE), "--input-type=module", "--eval", example("Playwright", "js")]
    assert run(words, server, DIRECTORY) == "Hello, herd\n"


def test_the_example_of_puppeteer_prints_the_title(server: Server) -> None:
    words = [str(NODE), "--input-type=module", "--eval", example("Puppeteer", "js")]
    assert run(words, server, PUPPETEER) == "Hello, herd\n"
