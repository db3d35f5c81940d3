"""Examples that no test runs are at least written in the language they are said to be in."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import tomllib
from collections.abc import Callable

import pytest
from tests.docs.snippets import PAGES, RUN, Snippet, snippets

from tabherd import config

# Generated pages and those whose figures are measured have no examples of anybody's.
ALL = [each for page in PAGES for each in snippets(page)]


def _python(text: str) -> None:
    compile(text, "example", "exec")


def _shell(text: str) -> None:
    done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _json(text: str) -> None:
    # A part of an object is written without its braces.
    json.loads(text if text.lstrip().startswith(("{", "[")) else f"{{{text}}}")


def _ini(text: str) -> None:
    configparser.ConfigParser(strict=True, interpolation=None).read_string(text)


# By language; those with None have nothing that could be parsed here, or a test that runs them.
PARSED: dict[str, Callable[[str], object] | None] = {
    "python": _python,
    "py": _python,
    "sh": _shell,
    "bash": _shell,
    "json": _json,
    "toml": tomllib.loads,
    "ini": _ini,
    "js": None,
    "ts": None,
    "text": None,
    "mermaid": None,
    "": None,
}


@pytest.mark.parametrize("snippet", ALL, ids=str)
def test_the_example_is_written_in_its_language(snippet: Snippet) -> None:
    parse = PARSED[snippet.language]
    if parse is not None:
        parse(snippet.text)


@pytest.mark.parametrize("snippet", [each for each in ALL if each.language == "toml"], ids=str)
def test_settings_that_are_shown_exist(snippet: Snippet) -> None:
    sections = {"store", "tiers", *(name for name in config.Config.__struct_fields__)}
    for name in tomllib.loads(snippet.text):
        # What other programs are configured with is theirs.
        assert name in sections or name == "mcp_servers"


@pytest.mark.parametrize("snippet", [each for each in ALL if each.language in RUN], ids=str)
def test_an_example_that_is_run_names_no_place_of_somebodys_machine(snippet: Snippet) -> None:
    assert not re.search(r"127\.0\.0\.1:7722|/home/", snippet.text)
