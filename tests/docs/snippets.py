"""The examples of the documentation, page by page, and how one page is followed from its top to its end.

What an example is, its language says:

- `sh` and `python` are run, in order, in one directory, as somebody would who follows the page;
- `bash` and `py` are parts of something, or name what a test does not have (a network, a second machine); they are
  parsed, and so are `json`, `toml`, `ini` and `js`;
- an example whose first line is a comment with nothing but the name of a file is written into that file.

`sh` examples of one page share one shell, so that what one sets the next can use. Pages that speak of `$URL`, `$AUTH`,
`$SESSION`, `$FENCE` and `$TAB` find them set: those of the server, and of a session of the agent alice.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.cli.running import environment

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
RUN = frozenset({"sh", "python"})
# A page that hangs is ended, and fails with what it said until then.
LIMIT_S = 400

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|//) ([\w.-]+\.\w+)\n")


@dataclass(frozen=True, slots=True)
class Snippet:
    """One example: where it is, its language, and its text."""

    page: str
    number: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that it is to be saved in, if it says so."""
        named = _NAMED.match(self.text)
        return named[1] if named else None

    def __str__(self) -> str:
        return f"{self.page}:{self.number}"


def snippets(page: str) -> list[Snippet]:
    """All examples of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for number, match in enumerate(_FENCE.finditer(text)):
        indent = match["indent"]
        lines = [line.removeprefix(indent) for line in match["text"].splitlines(keepends=True)]
        found.append(Snippet(page, number, match["language"], "".join(lines)))
    return found


def follow(
    page: str, state: Path | None, directory: Path, *, needs: str = "", variables: Mapping[str, str] | None = None
) -> dict[int, str]:
    """Do what the page says, against the server of that state directory; answers with what each example printed.

    Without a state directory the page starts servers itself. `needs` is shell that runs before the page: what it takes
    for granted.
    """
    # A refusal is a failure here, though a reader would only see it printed.
    script = ['curl() { command curl --fail-with-body "$@"; }', needs]
    for snippet in snippets(page):
        if snippet.file is not None:
            (directory / snippet.file).write_text(snippet.text, encoding="utf-8")
        elif snippet.language in RUN:
            script.append(rf"printf '\n@@@ {snippet.number}\n'")
            script.append(
                snippet.text
                if snippet.language == "sh"
                else f"python - <<'END_OF_PYTHON'\n{snippet.text}\nEND_OF_PYTHON"
            )
    code, output = _shell("\n".join(script), _surroundings(state or directory) | dict(variables or {}), directory)
    assert code == 0, f"{page} failed with {code}:\n{output}"
    parts = re.split(r"\n@@@ (\d+)\n", output)
    return {int(number): said for number, said in zip(parts[1::2], parts[2::2], strict=True)}


def _shell(script: str, variables: Mapping[str, str], directory: Path) -> tuple[int | None, str]:
    """How a script ended, None if it had to be, and all that it said; nothing that it started stays."""
    log = directory / "said.log"
    with log.open("wb") as sink:
        child = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            env=dict(variables),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        code = child.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        # Its own group: also what a page left in the background when it failed.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return code, log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def with_session(state: Path) -> Iterator[dict[str, str]]:
    """What pages find set that begin with a session that is open already. It ends with the page, if that has not."""
    record = json.loads((state / "server.json").read_text())
    headers = {"Authorization": f"Bearer {(state / 'admin.token').read_text().strip()}"}
    with httpx.Client(base_url=record["url"], headers=headers, timeout=60) as client:
        asked = {"agentId": "alice", "keepAlive": True}
        session = client.post("/sessions", json=asked).raise_for_status().json()
        try:
            yield {
                "SESSION": session["sessionId"],
                "FENCE": str(session["fence"]),
                "TAB": session["tabs"][0]["tabId"],
            }
        finally:
            client.delete(f"/sessions/{session['sessionId']}")


def _surroundings(state: Path) -> dict[str, str]:
    # `python` and `tabherd` are this environment's, as after `source .venv/bin/activate`.
    found = environment(state) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if (state / "server.json").exists():
        found["URL"] = json.loads((state / "server.json").read_text())["url"]
        found["AUTH"] = f"Authorization: Bearer {(state / 'admin.token').read_text().strip()}"
    return found
