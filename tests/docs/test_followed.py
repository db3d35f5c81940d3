"""Whoever follows a page of the documentation from its top to its end gets there, with what the page promises.

Every page with examples that can be run is followed here, or named with the test that runs its examples in a way of its
own. One page in each language is followed in every run of the tests, all of them before a release.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import playwright
import pytest
from tests.cli.running import running_server
from tests.docs.snippets import PAGES, ROOT, RUN, follow, snippets, with_session
from tests.server.conftest import Server

# Pages whose examples are run elsewhere, and by what.
ELSEWHERE = {
    "README.md": "tests/docs/test_examples.py",
    "docs/quickstart.md": "tests/docs/test_examples.py",
    "docs/how-to/python.md": "tests/docs/test_examples.py",
    "docs/how-to/tasks.md": "tests/docs/test_examples.py",
    "docs/how-to/connect-over-cdp.md": "tests/cdp_clients/test_documented.py",
    "docs/how-to/cluster.md": "tests/docs/test_cluster_page.py",
}


class Story(NamedTuple):
    """What a page takes for granted, as shell, and words that it must have led to, as regular expressions."""

    needs: str = ""
    said: tuple[str, ...] = ()
    # Whether it takes a session of alice's for granted.
    has_session: bool = False


def in_session(needs: str = "", said: tuple[str, ...] = ()) -> Story:
    """The story of a page that begins with a session that is open already."""
    return Story(needs, said, has_session=True)


PAGE = "tabherd act $TAB navigate url='data:text/html,"
# No page speaks of the warm stock of the pool that needs no settings; each context of it is work.
COLD = {"TABHERD_POOLS__DEFAULT__WARM": "0"}
STORIES = {
    "docs/how-to/change-settings.md": Story(said=(r'"changed":\["pools.default.max_active","scheduler.workers"\]',)),
    "docs/how-to/command-line.md": in_session(said=(r'heading "Hello, herd"', r"me +active")),
    "docs/how-to/commands.md": in_session(said=(r"command_timed_out", r"about:blank", r"1\n1\n")),
    "docs/how-to/dialogs.md": in_session(
        PAGE + """<button id=delete onclick="confirm(\\'Delete it?\\')">Delete</button>'""".replace("\\'", "&apos;"),
        (r'"message":"Delete it\?","isAccepted":true',),
    ),
    "docs/how-to/drive-a-page.md": in_session(said=(r'textbox "E-mail"', r"\n1\n")),
    "docs/how-to/errors.md": Story(),
    "docs/how-to/files.md": in_session(
        PAGE
        + """<input type=file id=photo><a download=report.pdf href="data:application/pdf,x">Report</a>'
        tabherd act $TAB click selector=a
        until curl -s -H "$AUTH" $URL/sessions/$SESSION/files | grep -q completed; do sleep 0.1; done
        echo picture > photo.jpg
        """,
        (r'"name":"report.pdf"', r'"path":".*photo.jpg"', r'"ok":true'),
    ),
    "docs/how-to/hand-off.md": in_session(said=(r'"state":"paused"', r'"state":"ready"')),
    "docs/how-to/keep-a-session.md": in_session(said=(r'"cancel":\[\]',)),
    "docs/how-to/locks.md": Story(
        "printf '#!/bin/sh\\necho fence $TABHERD_LOCK_FENCE\\n' > update-account.sh; chmod +x update-account.sh",
        (r"fence \d+",),
    ),
    "docs/how-to/locks-in-python.md": Story(said=(r"alone with agent 42\nfree", r"nightly import")),
    "docs/how-to/playwright-suite.md": Story(said=(r"5 passed", r"report.csv\ntest_a_report_can_be_downloaded.zip")),
    "docs/how-to/reuse-tabs.md": in_session(said=(r"Ended ses_",)),
    "docs/how-to/scraping-farm.md": Story(
        said=(r"0 EUR\n1 EUR\n", r"done", r"support has hi\n[1-9]\d* of 40", r'"tasksFailed":0')
    ),
    "docs/how-to/share-a-profile.md": Story(
        said=(r"Ask me until", r"changed under fence \d+", r"nobody else is in", r'"reason":"key_cap"')
    ),
    "docs/how-to/share-one-browser.md": Story(
        said=(r'claude sees .*"Page of claude"', r'cursor sees .*"Page of cursor"', r"claude +active(?!.*cursor)")
    ),
    "docs/how-to/survive-crashes.md": in_session(said=(r'"type":"session.opened"',)),
    "docs/how-to/take-over.md": in_session(said=(r'"agentId":"bob"',)),
    "docs/how-to/take-turns.md": in_session(said=(r'"outcome":"completed"', r"Go")),
    "docs/how-to/tokens.md": Story(said=(r"for alice, fence",)),
    "docs/how-to/webhooks.md": in_session(said=(r'"taskId"',)),
    "docs/operations.md": in_session(),
}


# One in shell with a session that is there already, one in Python; they need no settings and change none.
SAMPLE = ("docs/how-to/take-turns.md", "docs/how-to/locks-in-python.md")


def test_every_page_with_examples_to_run_is_followed() -> None:
    having = {page for page in PAGES if any(each.language in RUN for each in snippets(page))}
    assert having == set(STORIES) | set(ELSEWHERE)
    assert [test for test in ELSEWHERE.values() if not (ROOT / test).is_file()] == []


def configuration(profile: Path) -> str:
    """What the pages themselves say to configure, with a directory and a browser that this machine has."""
    (shared, _attached) = [each.text for each in snippets("docs/how-to/share-a-profile.md") if each.language == "toml"]
    (farm,) = [each.text for each in snippets("docs/how-to/scraping-farm.md") if each.language == "toml"]
    here = shared.replace('"/home/me/tabherd-profile"', f'"{profile}"').replace("headless = false", "headless = true ")
    assert here != shared
    return f"{here}\n{farm}"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("followed")
    settings = place / "tabherd.toml"
    settings.write_text(configuration(place / "profile"))
    with running_server(place / "state", {"TABHERD_CONFIG": str(settings), **COLD}) as started:
        yield started.state


def check(page: str, state: Path, directory: Path) -> None:
    """Follow the page, and look for the words that it must lead to."""
    story = STORIES[page]
    with with_session(state) if story.has_session else nullcontext({}) as variables:
        said = "\n".join(follow(page, state, directory, needs=story.needs, variables=variables).values())
    for words in story.said:
        assert re.search(words, said), f"{words!r} is not in what {page} led to:\n{said}"


@pytest.mark.server
@pytest.mark.browser
@pytest.mark.parametrize("page", SAMPLE)
def test_whoever_follows_a_page_gets_what_it_promises(page: str, shared_server: Server, tmp_path: Path) -> None:
    check(page, shared_server.state, tmp_path)


@pytest.mark.release
@pytest.mark.server
@pytest.mark.browser
@pytest.mark.parametrize("page", [page for page in STORIES if page not in SAMPLE])
def test_whoever_follows_any_other_page_gets_what_it_promises(page: str, state: Path, tmp_path: Path) -> None:
    check(page, state, tmp_path)


@pytest.mark.release
@pytest.mark.server
@pytest.mark.browser
def test_the_node_suite_passes_with_the_fixture_of_the_page(state: Path, tmp_path: Path) -> None:
    for snippet in snippets("docs/how-to/playwright-suite.md"):
        if snippet.language == "ts":
            assert snippet.file is not None
            (tmp_path / snippet.file).write_text(snippet.text)
    # What `npm install @playwright/test` would bring: Playwright, and a package that hands its test runner on.
    modules = tmp_path / "node_modules"
    (modules / "@playwright" / "test").mkdir(parents=True)
    for name in ("playwright", "playwright-core"):
        (modules / name).symlink_to(ROOT / "tests" / "cdp_clients" / "node_modules" / name)
    (modules / "@playwright" / "test" / "package.json").write_text('{"main": "index.js"}')
    (modules / "@playwright" / "test" / "index.js").write_text("module.exports = require('playwright/test');\n")
    node = Path(playwright.__file__).parent / "driver" / "node"
    (command,) = [each.text for each in snippets("docs/how-to/playwright-suite.md") if each.language == "bash"]
    here = command.replace("http://127.0.0.1:7722", "$URL").replace(
        "npx playwright", f"{node} node_modules/playwright/cli.js"
    )
    assert here.count("$URL") == 1
    (tmp_path / "bash.md").write_text(f"# Run\n\n```sh\n{here}```\n")
    said = follow(os.path.relpath(tmp_path / "bash.md", ROOT), state, tmp_path)
    assert "1 passed" in said[0]
