"""Every example of the page on Python runs as it stands, and does what the text around it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import environment, running_server
from tests.docs.test_examples import examples

pytestmark = [pytest.mark.server, pytest.mark.browser]

# A word of what each prints, in the order of the page.
SAID = ["Hello, herd", "", "text=Sign in", "tabherd", "['alice', 'bob']", "Hello from Playwright", "table.csv"]
EXAMPLES = examples("docs/how-to/python.md", "python")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("python") / "state") as started:
        yield started.state


@pytest.mark.parametrize(("example", "said"), list(zip(EXAMPLES, SAID, strict=True)), ids=range(len(SAID)))
def test_the_example_runs_and_says_what_it_should(state: Path, tmp_path: Path, example: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", example],
        env=environment(state),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
