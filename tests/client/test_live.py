"""Both flavours against a real server with a real browser: what they do, and that their sessions live and die well."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.client.living import LIMIT_S, SETTINGS, TOO_LONG_S, environ_of, program, until
from tests.server.conftest import Server, events_of, with_settings

from tabherd import errors
from tabherd.client import AsyncTabherd, AsyncTask, Tabherd

pytestmark = [pytest.mark.server, pytest.mark.browser]

PAGE = """data:text/html,<title>A page</title><h1>Hello</h1><button onclick="document.title='clicked'">Go</button>
<input id=name><input type=checkbox id=box><select id=size><option>S<option>L</select><a href="%23x">link</a>"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("live") / "state", SETTINGS) as server:
        yield server


@pytest.fixture
def herd(server: Server) -> Iterator[Tabherd]:
    with Tabherd(environ=environ_of(server), patience_s=20) as client:
        yield client


# --- What they do -----------------------------------------------------------------------------------------------


def test_a_session_does_what_its_verbs_say(herd: Tabherd, tmp_path: Path) -> None:
    with herd.session(agent="alice", url=PAGE) as session:
        tab = session.tab
        assert 'button "Go"' in tab.snapshot(interactive=True)
        tab.click("text=Go")
        tab.fill("#name", "Ada")
        tab.type("#name", " L")
        tab.check("#box")
        tab.select("#size", ["L"])
        tab.press("Tab", "#name")
        tab.wait("h1")
        read = "[document.title, document.querySelector('#name').value, box.checked, size.value]"
        assert tab.evaluate(read) == ["clicked", "Ada L", True, "L"]
        assert tab.evaluate("(a, b) => a + b", [1, 2]) == 3
        assert (tab.text("h1"), tab.html("h1")) == ("Hello", "<h1>Hello</h1>")
        assert tab.screenshot(tmp_path / "a.png").startswith(b"\x89PNG")
        assert tab.run([{"kind": "text", "selector": "h1"}, {"kind": "evaluate", "expression": "1"}]) == ["Hello", 1]
        with tab.lock():
            assert tab.evaluate("'mine'") == "mine"
        other = session.new_tab("data:text/html,two")
        assert [each.text() for each in session.tabs][1] == "two"
        other.close()
        assert session.tabs == [tab]
    assert herd.session_view(session.id).state == "closed"


async def test_the_same_in_asyncio(server: Server, tmp_path: Path) -> None:
    async with AsyncTabherd(environ=environ_of(server)) as herd, herd.session(agent="bob", url=PAGE) as session:
        tab = session.tab
        await tab.click("text=Go")
        assert await tab.evaluate("document.title") == "clicked"
        async with tab.lock():
            assert await tab.run([{"kind": "text", "selector": "h1"}]) == ["Hello"]
        assert (await tab.screenshot(tmp_path / "a.png")).startswith(b"\x89PNG")
        (tmp_path / "up.txt").write_text("x" * 3_000_000)
        await session.upload(tmp_path / "up.txt")
        await session.download_to("up.txt", tmp_path / "down.txt")
        assert (tmp_path / "down.txt").stat().st_size == 3_000_000
        both = await asyncio.gather(tab.text("h1"), (await session.new_tab("data:text/html,two")).text())
        assert both == ["Hello", "two"]


def test_files_and_state_go_in_and_out(herd: Tabherd, tmp_path: Path) -> None:
    with herd.session(agent="alice") as session:
        session.upload(b"abc", "a/b c.txt")
        (file,) = session.files()
        assert session.download(file.name) == b"abc"
        (tmp_path / "big").write_bytes(os.urandom(2_500_000))
        session.upload(str(tmp_path / "big"))
        session.download_to("big", tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "big").read_bytes()
        with pytest.raises(errors.FileNotFound):
            session.download("../../admin.token")
        cookie = {"name": "who", "value": "ada", "domain": "a.test", "path": "/"}
        session.set_storage_state({"cookies": [cookie], "origins": []})
        state = session.storage_state()
        assert [each["value"] for each in state.cookies] == ["ada"]
    with herd.session(agent="alice", storage_state=state) as session:
        assert session.tab.cookies(["http://a.test/"])[0]["value"] == "ada"


def test_an_answer_may_be_huge(herd: Tabherd) -> None:
    with herd.session(agent="alice") as session:
        assert len(session.tab.evaluate("'ä'.repeat(5e6)")) == 5_000_000


def test_a_step_ends_at_its_own_time(herd: Tabherd) -> None:
    with herd.session(agent="alice", url=PAGE) as session:
        with pytest.raises(errors.ElementNotFound) as caught:
            session.tab.run([{"kind": "text"}, {"kind": "click", "selector": "#no", "timeout_ms": 3_000}])
        assert [step["ok"] for step in caught.value.details["steps"]] == [True, False]
        assert session.tab.text("h1") == "Hello"


def test_one_client_serves_many_threads(herd: Tabherd) -> None:
    def visit(n: int) -> int:
        with herd.session(agent=f"t{n}") as session:
            return sum(session.tab.evaluate(f"{n} + {k}") for k in range(5))

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(visit, range(6))) == [5 * n + 10 for n in range(6)]


def test_threads_on_one_tab_take_turns_however_many_they_are(herd: Tabherd) -> None:
    with herd.session(agent="alice") as session:
        session.tab.evaluate("window.n = 0")
        step = "new Promise(done => { const before = n; setTimeout(() => done(n = before + 1), 3); })"
        # More than may queue on a tab: the rest is refused, and waits that out.
        with ThreadPoolExecutor(24) as threads:
            list(threads.map(lambda _: session.tab.evaluate(step), range(24)))
        assert session.tab.evaluate("n") == 24


def test_events_tell_what_happened_since_a_place(herd: Tabherd) -> None:
    # Before every event that is kept: the answer is a `reset`, which says where the stream stands.
    here = next(herd.events(after="0-0")).id
    with herd.session(agent="carol") as session:
        (event,) = herd.events(after=here, types="session.opened", agent="carol", silence_s=3)
    assert (event.type, event.data["sessionId"]) == ("session.opened", session.id)


# --- Tasks ------------------------------------------------------------------------------------------------------


def test_a_task_is_run_in_its_turn_and_answers_as_its_action_does(herd: Tabherd) -> None:
    with herd.session(agent="alice", url=PAGE) as session:
        task = herd.submit(action="screenshot", session=session)
        assert task.result(timeout=30).startswith(b"\x89PNG")
        assert (task.done(), task.status().agent_id) == (True, "alice")
        assert herd.submit(action="text", tab=session.tab, selector="h1").result() == "Hello"
        steps = [{"kind": "fill", "selector": "#name", "value": "Ada"}, {"kind": "text", "selector": "h1"}]
        assert herd.submit(steps=steps, session=session).result()[-1] == "Hello"
        with pytest.raises(errors.JavascriptError):
            herd.submit(action="evaluate", tab=session.tab, expression="nobody.knows").result()
        with pytest.raises(errors.DeadlineExceeded):
            herd.submit(action="wait", tab=session.tab, ms=60_000, deadline_ms=2_000).result()


def test_a_task_that_is_waited_for_too_briefly_goes_on_until_it_is_cancelled(herd: Tabherd) -> None:
    with herd.session(agent="alice") as session:
        task = herd.submit(action="wait", session=session, ms=30_000)
        with pytest.raises(TimeoutError):
            task.result(timeout=0.1)
        assert herd.task(task.id).cancel().state == "cancelled"
        with pytest.raises(errors.StateConflict, match="cancelled"):
            task.result()


async def test_tasks_in_asyncio(server: Server) -> None:
    async with AsyncTabherd(environ=environ_of(server)) as herd:
        fresh = [{"kind": "navigate", "url": PAGE}, {"kind": "text", "selector": "h1"}]
        first, refused, second = await herd.submit_batch(
            [{"steps": fresh}, {"action": "fly"}, {"steps": fresh, "priority": -1}], agent="bob"
        )
        assert isinstance(first, AsyncTask)
        assert isinstance(second, AsyncTask)
        assert isinstance(refused, errors.UnknownAction)
        results = await asyncio.gather(first.result(timeout=30), second.result(timeout=30))
        assert [result[-1] for result in results] == ["Hello", "Hello"]
        assert {first.id, second.id} <= {view.task_id for view in await herd.tasks(agent="bob", state="done")}
        assert (await herd.scheduler_stats()).metrics.agents["bob"].tasks_completed == 2


# --- A place ----------------------------------------------------------------------------------------------------


def test_who_wants_no_wait_for_a_place_is_refused_at_once(herd: Tabherd) -> None:
    with herd.session(agent="alice", pool="tiny"):
        with pytest.raises(errors.Capacity) as caught:
            herd.session(agent="bob", pool="tiny", wait_ms=0).open()
        assert caught.value.details["reason"] == "pool_cap"


def test_who_waits_gets_the_place_that_is_given_back(herd: Tabherd) -> None:
    with ThreadPoolExecutor(1) as threads:
        with herd.session(agent="alice", pool="tiny"):
            waiting = threads.submit(herd.session(agent="bob", pool="tiny").open)
            until(lambda: herd.stats().pools["tiny"].waiting == 1)
        session = waiting.result(LIMIT_S)
        session.close()


async def test_who_is_cancelled_while_waiting_for_a_place_leaves_nothing_behind(server: Server) -> None:
    async with AsyncTabherd(environ=environ_of(server)) as herd:
        async with herd.session(agent="alice", pool="tiny"):
            waiting = asyncio.ensure_future(herd.session(agent="nobody", pool="tiny").open())
            while (await herd.stats()).pools["tiny"].waiting == 0:
                await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.wait([waiting])
            while (await herd.stats()).pools["tiny"].waiting == 1:
                await asyncio.sleep(0.02)
        assert await herd.sessions(agent="nobody") == []


# --- Life and death ---------------------------------------------------------------------------------------------


def test_a_session_outlives_a_main_thread_that_is_blocked(herd: Tabherd) -> None:
    with herd.session(agent="alice", pool="hasty") as session:
        session.phase = "thinking"
        time.sleep(TOO_LONG_S)
        assert herd.session_view(session.id).state == "active"
        assert session.tab.evaluate("1") == 1


async def test_a_session_outlives_an_event_loop_that_is_blocked(server: Server) -> None:
    async with AsyncTabherd(environ=environ_of(server)) as herd, herd.session(pool="hasty", agent="a") as session:
        time.sleep(TOO_LONG_S)
        assert (await herd.session_view(session.id)).state == "active"
        assert await session.tab.evaluate("1") == 1


def test_a_session_that_is_forgotten_ends_on_the_server(server: Server, herd: Tabherd) -> None:
    with events_of(server, "session.closed") as events:
        session = herd.session(agent="alice", pool="hasty").open()
        session.heartbeat()
        session_id = session.id
        del session
        told = next(event for event in events if event["sessionId"] == session_id)
    assert told["reason"] == "stale"


HOLDER = """
import sys
from tabherd import Tabherd
session = Tabherd().session(agent="held", pool="hasty").open()
session.heartbeat()
print(session.id, flush=True)
sys.stdin.readline()
import time
for _ in range(1500):
    if session.is_lost: break
    time.sleep(0.02)
print(session.is_lost, flush=True)
"""


def test_a_process_that_is_stopped_beats_no_more_and_learns_afterwards_what_it_lost(server: Server) -> None:
    with events_of(server, "session.closed") as events, program(server.state, HOLDER) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        session_id = holder.stdout.readline().strip()
        os.kill(holder.pid, signal.SIGSTOP)
        told = next(event for event in events if event["sessionId"] == session_id)
        os.kill(holder.pid, signal.SIGCONT)
        said, wrong = holder.communicate("\n", timeout=LIMIT_S)
    assert (told["reason"], said, wrong) == ("stale", "True\n", "")


LEAVER = """
from tabherd import Tabherd
session = Tabherd().session(agent="leaver", pool="hasty").open()
import time
time.sleep(1.2)
"""


def test_a_process_ends_in_order_although_its_session_is_open(server: Server) -> None:
    with program(server.state, LEAVER) as leaver:
        said, wrong = leaver.communicate(timeout=LIMIT_S)
    assert (leaver.returncode, said, wrong) == (0, "", "")


FORKING = """
import os, sys
from tabherd import Tabherd
with Tabherd() as herd, herd.session(agent="forking") as session:
    session.tab.evaluate("0")
    child = os.fork()
    who = "parent" if child else "child"
    seen = {session.tab.evaluate(f"'{who} {n}'") == f"{who} {n}" for n in range(40)}
    if not child:
        os._exit(0 if seen == {True} else 1)
    print(seen, os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_forked_child_never_reads_its_parents_answers(server: Server) -> None:
    with program(server.state, FORKING) as forking:
        said, wrong = forking.communicate(timeout=LIMIT_S)
    assert (said, wrong) == ("{True} 0\n", "")


def test_a_session_that_is_given_to_another_is_lost_without_a_word_being_sent(herd: Tabherd) -> None:
    session = herd.session(agent="alice", pool="hasty").open()
    taken = herd.take_over(session.id, "bob")
    until(lambda: session.is_lost)
    for verb in (session.tab.text, session.refresh, session.files, session.storage_state):
        with pytest.raises(errors.LeaseLost):
            verb()
    session.close()
    assert herd.session_view(session.id).state == "active"
    herd.end_session(taken.session_id, taken.fence)


def test_a_late_holder_that_has_not_heard_yet_touches_nothing(herd: Tabherd) -> None:
    session = herd.session(agent="alice").open()
    taken = herd.take_over(session.id, "bob")
    # An administrator's credential reaches every session: only the fence tells whose lease it is.
    with pytest.raises(errors.LeaseLost):
        session.tab.evaluate("document.title = 'late'")
    assert session.is_lost is True
    herd.end_session(taken.session_id, taken.fence)


def test_an_open_session_is_found_by_its_id_and_an_ended_one_is_not(herd: Tabherd, server: Server) -> None:
    with herd.session(agent="alice", url=PAGE) as session, Tabherd(environ=environ_of(server)) as other:
        assert other.find_session(session.id).tab.text("h1") == "Hello"
    with pytest.raises(errors.LeaseLost, match="released"):
        herd.find_session(session.id)
    with pytest.raises(errors.SessionNotFound):
        herd.find_session("ses_none")


def test_sessions_that_are_dropped_leave_no_thread(herd: Tabherd) -> None:
    # Those of other tests may still be at a beat that nobody answers.
    before = set(threading.enumerate())
    for _ in range(3):
        with herd.session(agent="alice", pool="hasty") as session:
            session.heartbeat()
    gc.collect()
    until(lambda: not [thread for thread in set(threading.enumerate()) - before if thread.name == "tabherd-pulse"])
