"""What the demo's site writes down, and how the demo looks: on a terminal, in a pipe and to programs."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from io import StringIO
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from tabherd import wire
from tabherd.cli.demo.record import BOARD, Mishap, Phase
from tabherd.cli.demo.show import Picture, Plain, show_verdicts, stage_for
from tabherd.cli.demo.site import BODY_MAX_BYTES, Site, board_url, desk_url, login_url
from tabherd.cli.demo.verdict import verdict

REPORT = {"agent": "a01", "visit": "a01.1", "document": "d", "id": "a01.1.1"}
LOGGED_IN = {"Cookie": "agent=a01; visit=a01.1"}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


def ask(
    url: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, list[str]], str]:
    """Status, headers and body of one request, whose redirect is not followed."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        content = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, content, headers or {})
        answer = connection.getresponse()
        named: dict[str, list[str]] = {}
        for name, value in answer.getheaders():
            named.setdefault(name, []).append(value)
        return answer.status, named, answer.read().decode()
    finally:
        connection.close()


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def test_who_logs_in_gets_cookies_and_is_led_to_its_desk(site: Site) -> None:
    status, headers, _ = ask(site.url, path_of(login_url(site.url, "a01", "a01.1", has_pulse=False)))
    assert (status, headers["Location"]) == (303, ["/desk?agent=a01&visit=a01.1"])
    assert [cookie.partition(";")[0] for cookie in headers["Set-Cookie"]] == ["agent=a01", "visit=a01.1"]


def test_the_cookies_of_an_arrival_are_those_it_brought(site: Site) -> None:
    ask(site.url, path_of(login_url(site.url, "a02", "a02.1", has_pulse=False)), headers=LOGGED_IN)
    (hit,) = site.hits
    assert (hit.what, hit.visit, hit.cookie_visit) == ("arrive", "a02.1", "a01.1")


def test_a_report_is_written_down_with_what_it_claims_and_what_its_cookies_say(site: Site) -> None:
    assert ask(site.url, "/add", REPORT, LOGGED_IN)[0] == 204
    (hit,) = site.hits
    assert (hit.what, hit.agent, hit.visit, hit.id) == ("add", "a01", "a01.1", "a01.1.1")
    assert (hit.cookie_agent, hit.cookie_visit) == ("a01", "a01.1")


def test_a_desk_shows_the_lines_of_its_cookie_and_no_others(site: Site) -> None:
    ask(site.url, "/add", REPORT, LOGGED_IN)
    desk = path_of(desk_url(site.url, "a01", "a01.1", has_pulse=False))
    assert "a01.1.1</li>" in ask(site.url, desk, headers=LOGGED_IN)[2]
    assert "</li>" not in ask(site.url, desk, headers={"Cookie": "agent=a02; visit=a02.1"})[2]


def test_who_has_no_cookie_is_nobody(site: Site) -> None:
    ask(site.url, "/add", REPORT)
    page = ask(site.url, path_of(desk_url(site.url, "a01", "a01.1", has_pulse=False)))[2]
    assert "<b id=who>nobody</b>" in page
    assert "</li>" not in page


def test_the_board_is_nobodys_desk(site: Site) -> None:
    ask(site.url, path_of(board_url(site.url)))
    (hit,) = site.hits
    assert (hit.what, hit.visit) == ("page", BOARD)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/elsewhere", None, 404),
        ("/elsewhere", REPORT, 404),
        ("/add", {"agent": "a01"}, 400),
        ("/add", {"agent": "x" * BODY_MAX_BYTES}, 413),
    ],
)
def test_what_is_no_report_is_refused_and_not_written_down(site: Site, path: str, body: object, status: int) -> None:
    assert ask(site.url, path, body)[0] == status
    assert site.hits == []


# --- Looks ----------------------------------------------------------------------------------------------------------


def tab(agent: str) -> wire.TabView:
    holder = wire.Holder(reason="command", controller_id="c", since="now", kind="click")
    return wire.TabView(
        tab_id=f"tab_{agent}",
        session_id="ses_1",
        agent_id=agent,
        state="ready",
        url="",
        title="",
        generation=1,
        provenance="created",
        opener_tab_id=None,
        created_at="now",
        holder=holder,
        waiters=[],
        expected_wait_ms=0,
    )


def test_programs_hear_nothing_before_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    stage = stage_for(["a01"], 2, as_json=True)
    with stage:
        stage.say("It begins.")
    assert capsys.readouterr().out == ""
    assert [text for _, text in stage.said] == ["It begins."]


def test_a_pipe_gets_a_line_for_each_thing_that_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with stage_for(["a01"], 2, as_json=False) as stage:
        assert isinstance(stage, Plain)
        stage.hear(Phase(agent="a01", doing="works"))
        stage.say("It begins.")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("It begins.")


def test_a_picture_shows_who_does_what_which_tab_is_whose_and_what_was_told() -> None:
    picture = Picture(["a01", "a02"], 2)
    picture.hear(Phase(agent="a01", doing="works"))
    picture.hear(Mishap(agent="a02", code="outcome_unknown", at_ms=1))
    picture.look([tab("a01")])
    picture.say("It begins.")
    console = Console(width=120, file=StringIO())
    with console.capture() as captured:
        console.print(picture.draw())
    shown = captured.get()
    assert all(text in shown for text in ("a01 works", "click", "free", "It begins.", "1 mishap"))


def test_the_table_tells_what_held_from_what_did_not(capsys: pytest.CaptureFixture[str]) -> None:
    show_verdicts([verdict("cap kept", "3 of 3", True), verdict("in order", "1 of 9", False)])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["held", "BROKEN"]
