"""Both flavours against a real server with a real browser: what they do, and that their sessions live and die well."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.client.living import LIMIT_S, environ_of, program, until
from tests.server.conftest import Server, events_of
from tests.shared_server import unique

from tabherd import errors
from tabherd.client import AsyncTabherd, AsyncTask, Tabherd

pytestmark = [pytest.mark.server, pytest.mark.browser]

PAGE = """data:text/html,<title>A page</title><h1>Hello</h1><button onclick="document.title='clicked'">Go</button>
<input id=name><input type=checkbox id=box><select id=size><option>S<option>L</select><a href="%23x">link</a>"""


@pytest.fixture
def server(shared_server: Server) -> Server:
    return shared_server


@pytest.fixture
def herd(server: Server) -> Iterator[Tabherd]:
    with Tabherd(environ=environ_of(server), patience_s=20) as client:
        yield client


@pytest.fixture
def alice() -> str:
    """An agent that no other test has."""
    return unique("alice")


# --- What they do -----------------------------------------------------------------------------------------------


def test_a_session_does_what_its_verbs_say(herd: Tabherd, tmp_path: Path, alice: str) -> None:
    with herd.session(agent=alice, url=PAGE) as session:
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
        assert len(tab.evaluate("'ä'.repeat(1e6)")) == 1_000_000
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


async def test_the_same_in_asyncio(server: Server, tmp_path: Path, alice: str) -> None:
    async with AsyncTabherd(environ=environ_of(server)) as herd, herd.session(agent=alice, url=PAGE) as session:
        tab = session.tab
        await tab.click("text=Go")
        assert await tab.evaluate("document.title") == "clicked"
        async with tab.lock():
            assert await tab.run([{"kind": "text", "selector": "h1"}]) == ["Hello"]
        assert (await tab.screenshot(tmp_path / "a.png")).startswith(b"\x89PNG")
        (tmp_path / "up.txt").write_text("x" * 1_500_000)
        await session.upload(tmp_path / "up.txt")
        await session.download_to("up.txt", tmp_path / "down.txt")
        assert (tmp_path / "down.txt").stat().st_size == 1_500_000
        both = await asyncio.gather(tab.text("h1"), (await session.new_tab("data:text/html,two")).text())
        assert both == ["Hello", "two"]


def test_files_and_state_go_in_and_out(herd: Tabherd, tmp_path: Path, alice: str) -> None:
    with herd.session(agent=alice) as session:
        session.upload(b"abc", "a/b c.txt")
        (file,) = session.files()
        assert session.download(file.name) == b"abc"
        (tmp_path / "big").write_bytes(os.urandom(1_500_000))
        session.upload(str(tmp_path / "big"))
        session.download_to("big", tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "big").read_bytes()
        with pytest.raises(errors.FileNotFound):
            session.download("../../admin.token")
        cookie = {"name": "who", "value": "ada", "domain": "a.test", "path": "/"}
        session.set_storage_state({"cookies": [cookie], "origins": []})
        state = session.storage_state(path=tmp_path / "login.json")
        assert [each["value"] for each in state["cookies"]] == ["ada"]
    for again in (json.loads(json.dumps(state)), tmp_path / "login.json"):
        with herd.session(agent=alice, storage_state=again) as session:
            assert session.tab.cookies(["http://a.test/"])[0]["value"] == "ada"


def test_a_step_ends_at_its_own_time(herd: Tabherd, alice: str) -> None:
    with herd.session(agent=alice, url=PAGE) as session:
        with pytest.raises(errors.ElementNotFound) as caught:
            session.tab.run([{"kind": "text"}, {"kind": "click", "selector": "#no", "timeout_ms": 500}])
        assert [step["ok"] for step in caught.value.details["steps"]] == [True, False]
        assert session.tab.text("h1") == "Hello"


def test_threads_on_one_tab_take_turns_however_many_they_are(herd: Tabherd, alice: str) -> None:
    with herd.session(agent=alice) as session:
        session.tab.evaluate("window.n = 0")
        step = "new Promise(done => { const before = n; setTimeout(() => done(n = before + 1), 3); })"
        # More than may queue on a tab: the rest is refused, and waits that out.
        with ThreadPoolExecutor(24) as threads:
            list(threads.map(lambda _: session.tab.evaluate(step), range(24)))
        assert session.tab.evaluate("n") == 24


def test_events_tell_what_happened_since_a_place(herd: Tabherd, alice: str) -> None:
    # Before every event that is kept: the answer is a `reset`, which says where the stream stands.
    here = next(herd.events(after="0-0")).id
    with herd.session(agent=alice) as session:
        event = next(herd.events(after=here, types="session.opened", agent=alice))
    assert (event.type, event.data["sessionId"]) == ("session.opened", session.id)


# --- Tasks ------------------------------------------------------------------------------------------------------


def test_a_task_is_run_in_its_turn_and_answers_as_its_action_does(herd: Tabherd, alice: str) -> None:
    with herd.session(agent=alice, url=PAGE) as session:
        task = herd.submit(action="screenshot", session=session)
        assert task.result(timeout=30).startswith(b"\x89PNG")
        assert (task.done(), task.status().agent_id) == (True, alice)
        assert herd.submit(action="text", tab=session.tab, selector="h1").result() == "Hello"
        steps = [{"kind": "fill", "selector": "#name", "value": "Ada"}, {"kind": "text", "selector": "h1"}]
        assert herd.submit(steps=steps, session=session).result()[-1] == "Hello"
        with pytest.raises(errors.JavascriptError):
            herd.submit(action="evaluate", tab=session.tab, expression="nobody.knows").result()
        with pytest.raises(errors.DeadlineExceeded):
            herd.submit(action="wait", tab=session.tab, ms=60_000, deadline_ms=500).result()


def test_a_task_that_is_waited_for_too_briefly_goes_on_until_it_is_cancelled(herd: Tabherd, alice: str) -> None:
    with herd.session(agent=alice) as session:
        task = herd.submit(action="wait", session=session, ms=30_000)
        with pytest.raises(TimeoutError):
            task.result(timeout=0.1)
        assert herd.task(task.id).cancel().state == "cancelled"
        with pytest.raises(errors.StateConflict, match="cancelled"):
            task.result()


async def test_tasks_in_asyncio(server: Server, alice: str) -> None:
    async with AsyncTabherd(environ=environ_of(server)) as herd:
        fresh = [{"kind": "navigate", "url": PAGE}, {"kind": "text", "selector": "h1"}]
        first, refused, second = await herd.submit_batch(
            [{"steps": fresh}, {"action": "fly"}, {"steps": fresh, "priority": -1}], agent=alice
        )
        assert isinstance(first, AsyncTask)
        assert isinstance(second, AsyncTask)
        assert isinstance(refused, errors.UnknownAction)
        results = await asyncio.gather(first.result(timeout=30), second.result(timeout=30))
        assert [result[-1] for result in results] == ["Hello", "Hello"]
        assert {first.id, second.id} <= {view.task_id for view in await herd.tasks(agent=alice, state="done")}
        assert (await herd.scheduler_stats()).metrics.agents[alice].tasks_completed == 2


# --- A place ----------------------------------------------------------------------------------------------------


def test_who_wants_no_wait_for_a_place_is_refused_and_who_waits_gets_the_one_that_is_given_back(herd: Tabherd) -> None:
    with ThreadPoolExecutor(1) as threads:
        with herd.session(agent=unique("alice"), pool="solo"):
            with pytest.raises(errors.Capacity) as caught:
                herd.session(agent=unique("bob"), pool="solo", wait_ms=0).open()
            assert caught.value.details["reason"] == "pool_cap"
            waiting = threads.submit(herd.session(agent=unique("bob"), pool="solo").open)
            until(lambda: herd.stats().pools["solo"].waiting == 1)
        waiting.result(LIMIT_S).close()


async def test_who_is_cancelled_while_waiting_for_a_place_leaves_nothing_behind(server: Server, alice: str) -> None:
    nobody = unique("nobody")
    async with AsyncTabherd(environ=environ_of(server)) as herd:
        async with herd.session(agent=alice, pool="solo"):
            waiting = asyncio.ensure_future(herd.session(agent=nobody, pool="solo").open())
            while (await herd.stats()).pools["solo"].waiting == 0:
                await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.wait([waiting])
            while (await herd.stats()).pools["solo"].waiting == 1:
                await asyncio.sleep(0.02)
        assert await herd.sessions(agent=nobody) == []


# --- Life and death ---------------------------------------------------------------------------------------------


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


async def test_a_session_lives_as_long_as_its_owner_lives_however_blocked_that_is(server: Server, alice: str) -> None:
    """This test blocks its thread and its loop for longer than a session of the pool lives without a beat."""
    async with (
        AsyncTabherd(environ=environ_of(server)) as aio,
        aio.session(agent=alice, pool="hasty") as of_loop,
    ):
        with (
            Tabherd(environ=environ_of(server)) as herd,
            herd.session(agent=alice, pool="hasty") as of_thread,
            events_of(server, "session.closed") as events,
            program(server.state, HOLDER) as holder,
        ):
            of_thread.phase = "thinking"
            assert holder.stdin is not None
            assert holder.stdout is not None
            stopped = holder.stdout.readline().strip()
            forgotten = herd.session(agent=alice, pool="hasty").open()
            forgotten.heartbeat()
            wanted = {forgotten.id, stopped}
            del forgotten
            os.kill(holder.pid, signal.SIGSTOP)
            closed = {}
            while wanted - set(closed):
                told = next(events)
                if told["sessionId"] in {*wanted, of_loop.id, of_thread.id}:
                    closed[told["sessionId"]] = told["reason"]
            assert closed == dict.fromkeys(wanted, "stale")
            assert (of_thread.tab.evaluate("1"), herd.session_view(of_loop.id).state) == (1, "active")
            # Whose process was stopped learns afterwards what was lost.
            os.kill(holder.pid, signal.SIGCONT)
            assert await asyncio.to_thread(holder.communicate, "\n", LIMIT_S) == ("True\n", "")
        assert await of_loop.tab.evaluate("1") == 1


LEAVER = """
from tabherd import Tabherd
session = Tabherd().session(agent="leaver", pool="hasty").open()
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


def test_a_session_that_is_given_to_another_is_lost_without_a_word_being_sent(herd: Tabherd, alice: str) -> None:
    session = herd.session(agent=alice, pool="hasty").open()
    taken = herd.take_over(session.id, "bob")
    until(lambda: session.is_lost)
    for verb in (session.tab.text, session.refresh, session.files, session.storage_state):
        with pytest.raises(errors.LeaseLost):
            verb()
    session.close()
    assert herd.session_view(session.id).state == "active"
    herd.end_session(taken.session_id, taken.fence)


def test_a_late_holder_that_has_not_heard_yet_touches_nothing(herd: Tabherd, alice: str) -> None:
    session = herd.session(agent=alice).open()
    taken = herd.take_over(session.id, "bob")
    # An administrator's credential reaches every session: only the fence tells whose lease it is.
    with pytest.raises(errors.LeaseLost):
        session.tab.evaluate("document.title = 'late'")
    assert session.is_lost is True
    herd.end_session(taken.session_id, taken.fence)


def test_an_open_session_is_found_by_its_id_and_an_ended_one_is_not(herd: Tabherd, server: Server, alice: str) -> None:
    with herd.session(agent=alice, url=PAGE) as session, Tabherd(environ=environ_of(server)) as other:
        assert other.find_session(session.id).tab.text("h1") == "Hello"
    with pytest.raises(errors.LeaseLost, match="released"):
        herd.find_session(session.id)
    with pytest.raises(errors.SessionNotFound):
        herd.find_session("ses_none")


def test_sessions_that_are_dropped_leave_no_thread(herd: Tabherd, alice: str) -> None:
    # Those of other tests may still be at a beat that nobody answers.
    before = set(threading.enumerate())
    for _ in range(3):
        with herd.session(agent=alice, pool="hasty") as session:
            session.heartbeat()
    gc.collect()
    until(lambda: not [thread for thread in set(threading.enumerate()) - before if thread.name == "tabherd-pulse"])
