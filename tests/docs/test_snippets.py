"""Examples that no test runs are at least written in the language they are said to be in."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import tomllib
from collections.abc import Callable

import pytest
from tests.docs.snippets import PAGES, RUN, snippets

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


PARSED: dict[str, Callable[[str], object]] = {
    "python": _python,
    "py": _python,
    "sh": _shell,
    "bash": _shell,
    "json": _json,
    "toml": tomllib.loads,
    "ini": _ini,
}
# Nothing that could be parsed here, or with a test that runs it.
NOT_PARSED = frozenset({"js", "ts", "text", "mermaid", ""})


@pytest.mark.parametrize("language", PARSED)
def test_every_example_is_written_in_its_language(language: str) -> None:
    for snippet in ALL:
        if snippet.language == language:
            try:
                PARSED[language](snippet.text)
            except (AssertionError, SyntaxError, ValueError, configparser.Error) as error:
                pytest.fail(f"{snippet}: {error}")


def test_every_example_has_a_language_that_is_known() -> None:
    assert {each.language for each in ALL} <= {*PARSED, *NOT_PARSED}


def test_settings_that_are_shown_exist() -> None:
    # What other programs are configured with is theirs.
    sections = {"store", "tiers", *config.Config.__struct_fields__, "mcp_servers"}
    shown = {(str(each), name) for each in ALL if each.language == "toml" for name in tomllib.loads(each.text)}
    assert [place for place in shown if place[1] not in sections] == []


def test_an_example_that_is_run_names_no_place_of_somebodys_machine() -> None:
    run = [each for each in ALL if each.language in RUN]
    assert [str(each) for each in run if re.search(r"127\.0\.0\.1:7722|/home/", each.text)] == []
