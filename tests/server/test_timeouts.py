"""Timeouts on real pages: a command ends at its deadline, and nothing of it goes on when the next one begins."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

from .conftest import Server, act, browser_pids, events_of, is_alive, open_session, renderers, value_of
from .effects_site import LOOP, REPORT, EffectsSite
from .local_site import serving

pytestmark = [pytest.mark.server, pytest.mark.browser]

LIMIT_MS = 400
# For what must first find an element, or others queue up behind, on a machine that may be busy with other things.
ELEMENT_LIMIT_MS = 1_500
# Of what tells a frozen page from one that is only slow.
FROZEN_LIMIT_MS = 2_500
# What a command can leave behind, besides itself.
INJECTED = f"""
{LOOP % "timer"};
const again = async () => {{
  for (;;) {{ await {REPORT % "promise"}.catch(() => 0); await new Promise(done => setTimeout(done, 30)); }}
}};
again();
new Worker('/worker.js');
window.worker = new SharedWorker('/shared_worker.js');
navigator.serviceWorker.register('/service_worker.js');
document.body.append(Object.assign(document.createElement('iframe'), {{src: '/frame'}}));
"""
LEFT_BEHIND = {"timer", "promise", "worker", "shared-worker", "service-worker", "frame"}
# Ways never to end.
SPIN = "for (;;);"
ASK = """for (;;) {
  const asked = new XMLHttpRequest();
  asked.open('GET', '/effect?who=spin&at=' + Date.now(), false);
  asked.send();
}"""
# Does nothing else until the site opens.
BUSY = "const asked = new XMLHttpRequest(); asked.open('GET', '/hold', false); asked.send()"
STUCK = {
    "it spins and asks": (ASK, "default"),
    "it awaits a promise": ("new Promise(() => {})", "default"),
    "it opens dialogs": ("for (;;) alert('again');", "default"),
    "it spins in the full build": (SPIN, "full"),
}


@pytest.fixture
def site() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


@pytest.fixture
def tab_id(ada: httpx.Client, site: EffectsSite) -> str:
    """A tab at a page of the site, in which something is remembered."""
    return marked_tab(ada, site)


def marked_tab(client: httpx.Client, site: EffectsSite, **body: Any) -> str:
    tab_id = str(open_session(client, **body)["tabs"][0]["tabId"])
    mark(client, tab_id, site)
    return tab_id


def mark(client: httpx.Client, tab_id: str, site: EffectsSite) -> None:
    """Go to a page of the site and have it remember something."""
    answer = act(client, tab_id, "navigate", url=site.url("/field"), waitPolicy="wait_with_timeout")
    assert answer.status_code == 200, answer.text
    assert value_of(client, tab_id, "window.mark = 'kept'") == "kept"


def generation_of(client: httpx.Client, tab_id: str) -> int:
    return client.get(f"/tabs/{tab_id}").json()["generation"]


def timed_out(answer: httpx.Response) -> dict[str, Any]:
    """The details of what must be a timeout."""
    assert (answer.status_code, answer.json()["code"]) == (504, "command_timed_out"), answer.text
    return answer.json()["details"]


def begin_next(client: httpx.Client, tab_id: str, site: EffectsSite) -> int:
    """Run the next command; when it began, by the page's clock.

    It gives what was injected before it the time to show itself, and then asks the site for something itself, which
    waits its turn behind what was asked for before.
    """
    script = """async (url) => {
      const at = Date.now();
      await new Promise(done => setTimeout(done, 250));
      await fetch(url, {mode: 'no-cors'});
      return at;
    }"""
    patient = {"waitPolicy": "wait_with_timeout", "args": [site.url("/turn")]}
    answer = act(client, tab_id, "evaluate", expression=script, **patient)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


# --- The page is replaced ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stuck", "pool"), STUCK.values(), ids=STUCK)
def test_nothing_that_a_timed_out_command_injected_happens_after_it(
    ada: httpx.Client, site: EffectsSite, stuck: str, pool: str
) -> None:
    tab_id = marked_tab(ada, site, pool=pool)
    details = timed_out(act(ada, tab_id, "evaluate", expression=INJECTED + stuck, timeoutMs=LIMIT_MS))
    assert not details["effectsMayContinue"]
    next_at = begin_next(ada, tab_id, site)
    begin_next(ada, tab_id, site)
    assert [effect for effect in site.effects if effect.at > next_at] == []
    assert value_of(ada, tab_id, "[window.mark ?? null, location.href]") == [None, "about:blank"]
    assert generation_of(ada, tab_id) == 2


def test_what_is_injected_would_be_seen(ada: httpx.Client, tab_id: str, site: EffectsSite) -> None:
    """What the test above relies on: in a page that stays, every kind of effect is seen after the next command."""
    assert act(ada, tab_id, "evaluate", expression=INJECTED + "0").status_code == 200
    next_at = begin_next(ada, tab_id, site)
    seen: set[str] = set()
    for _ in range(50):
        begin_next(ada, tab_id, site)
        seen = {effect.who for effect in site.effects if effect.at > next_at}
        if seen == LEFT_BEHIND:
            break
    assert seen == LEFT_BEHIND


def test_every_kind_of_command_ends_at_its_deadline_and_the_page_is_replaced(
    ada: httpx.Client, tab_id: str, site: EffectsSite
) -> None:
    element = {"timeoutMs": ELEMENT_LIMIT_MS}
    commands: list[tuple[str, dict[str, Any]]] = [
        ("navigate", {"url": site.url("/never")}),
        ("navigate", {"url": site.url("/half")}),
        ("wait", {"function": "() => { for (;;); }"}),
        ("click", {"selector": "#spin", **element}),
        ("type", {"selector": "#field", "text": "x" * 500, "delayMs": 20, **element}),
    ]
    for number, (kind, params) in enumerate(commands):
        mark(ada, tab_id, site)
        details = timed_out(act(ada, tab_id, kind, **{"timeoutMs": LIMIT_MS, **params}))
        outcome = ada.get(f"/commands/{details['commandId']}").json()
        assert outcome["outcome"] == "timed_out", outcome
        # Timers count whole milliseconds.
        assert outcome["durationMs"] >= LIMIT_MS - 5, outcome
        assert value_of(ada, tab_id, "[window.mark ?? null, location.href]") == [None, "about:blank"]
        assert generation_of(ada, tab_id) == number + 2


def test_a_frozen_renderer_does_not_hold_the_tab_and_never_acts_again(
    ada: httpx.Client, tab_id: str, site: EffectsSite
) -> None:
    (pid,) = browser_pids(ada)
    # Which one is the page's shows when it is frozen: only then does the command not end, however busy the machine is.
    for renderer in renderers(pid):
        late = f"late-{renderer.pid}"
        try:
            renderer.send_signal(signal.SIGSTOP)
        except psutil.NoSuchProcess:
            # A spare one that has ended since: not the page's.
            continue
        try:
            answer = act(ada, tab_id, "evaluate", expression=REPORT % late, timeoutMs=FROZEN_LIMIT_MS)
            if answer.status_code == 200:
                continue
            timed_out(answer)
            assert value_of(ada, tab_id, "window.mark ?? null") is None
            assert generation_of(ada, tab_id) == 2
        finally:
            _thaw(renderer)
        begin_next(ada, tab_id, site)
        assert site.count(late) == 0
        return
    pytest.fail("no renderer is the page's")


def test_a_shared_worker_that_another_tab_uses_goes_on(ada: httpx.Client, tab_id: str, site: EffectsSite) -> None:
    session_id = ada.get(f"/tabs/{tab_id}").json()["sessionId"]
    other = ada.post(f"/sessions/{session_id}/tabs", json={"url": site.url("/field")}).json()["tabId"]
    value_of(ada, other, "window.worker = new SharedWorker('/shared_worker.js'); 'started'")
    timed_out(act(ada, tab_id, "evaluate", expression=SPIN, timeoutMs=LIMIT_MS))
    next_at = begin_next(ada, tab_id, site)
    for _ in range(20):
        begin_next(ada, tab_id, site)
        if any(effect.at > next_at for effect in site.effects):
            break
    assert "shared-worker" in {effect.who for effect in site.effects if effect.at > next_at}


def test_who_waits_meanwhile_gets_the_new_page_in_order(server: Server, ada: httpx.Client, tab_id: str) -> None:
    """The tab is quarantined from the timeout until its page is another one; nobody is let in between."""
    note = "(name) => { (window.log ??= [window.mark ?? 'new page']).push(name); return log; }"
    with events_of(server, "tab.quarantined,tab.rebuilt") as events, ThreadPoolExecutor(3) as callers:
        spinning = callers.submit(act, ada, tab_id, "evaluate", expression=SPIN, timeoutMs=ELEMENT_LIMIT_MS)
        while ada.get(f"/tabs/{tab_id}").json()["holder"] is None:
            assert not spinning.done()
        waiting = []
        for name in range(2):
            patient = {"waitPolicy": "wait_with_timeout", "expression": note, "args": [name]}
            waiting.append(callers.submit(act, ada, tab_id, "evaluate", **patient))
            while len(ada.get(f"/tabs/{tab_id}").json()["waiters"]) <= name:
                assert not spinning.done()
        timed_out(spinning.result())
        mine = (event["type"] for event in events if event["tabId"] == tab_id)
        told = [next(mine), next(mine)]
        logs = [one.result().json()["result"] for one in waiting]
    assert told == ["tab.quarantined", "tab.rebuilt"]
    assert max(logs, key=len) == ["new page", 0, 1]


# --- The page is kept -------------------------------------------------------------------------------------------


def test_a_page_that_is_to_be_kept_is_the_same_afterwards_and_the_outcome_warns(
    ada: httpx.Client, tab_id: str, site: EffectsSite
) -> None:
    for kind, params in (("evaluate", {"expression": SPIN}), ("navigate", {"url": site.url("/never")})):
        details = timed_out(act(ada, tab_id, kind, timeoutMs=LIMIT_MS, onTimeout="keep", **params))
        assert details["effectsMayContinue"]
        error = ada.get(f"/commands/{details['commandId']}").json()["error"]
        assert error["details"]["effectsMayContinue"]
        assert value_of(ada, tab_id, "[window.mark, location.pathname]") == ["kept", "/field"]
        assert generation_of(ada, tab_id) == 1


# --- What is no timeout -----------------------------------------------------------------------------------------


def test_a_page_that_asks_whether_it_may_be_left_is_replaced_after_a_timeout(
    ada: httpx.Client, tab_id: str, site: EffectsSite
) -> None:
    assert act(ada, tab_id, "navigate", url=site.url("/leaving")).status_code == 200
    assert act(ada, tab_id, "click", selector="#touch").status_code == 200
    timed_out(act(ada, tab_id, "evaluate", expression="new Promise(() => {})", timeoutMs=LIMIT_MS))
    assert value_of(ada, tab_id, "location.href") == "about:blank"


def test_a_download_is_no_page_and_leaves_the_one_that_is_there(
    ada: httpx.Client, tab_id: str, site: EffectsSite
) -> None:
    refused = act(ada, tab_id, "navigate", url=site.url("/file"))
    assert (refused.status_code, refused.json()["code"]) == (422, "navigation_failed")
    assert refused.json()["details"]["isDownload"]
    assert value_of(ada, tab_id, "window.mark") == "kept"
    assert generation_of(ada, tab_id) == 1


def test_an_element_that_never_comes_is_named_and_the_page_is_untouched(ada: httpx.Client, tab_id: str) -> None:
    failed = act(ada, tab_id, "click", selector="#missing", timeoutMs=ELEMENT_LIMIT_MS)
    assert (failed.status_code, failed.json()["code"]) == (422, "element_not_found"), failed.text
    assert failed.json()["details"]["waitingFor"] == "attached"
    # Nobody has to wait for anything: the tab was never quarantined.
    after = act(ada, tab_id, "evaluate", expression="window.mark")
    assert (after.status_code, after.json()["result"]) == (200, "kept")
    assert generation_of(ada, tab_id) == 1


def test_of_a_page_that_is_busy_with_itself_nothing_is_claimed_and_it_is_untouched(
    ada: httpx.Client, tab_id: str, site: EffectsSite
) -> None:
    assert act(ada, tab_id, "evaluate", expression=f"setTimeout(() => {{ {BUSY} }}); 'soon'").status_code == 200
    assert site.is_held.wait(30)
    assert timed_out(act(ada, tab_id, "click", selector="#missing", timeoutMs=LIMIT_MS))["waitingFor"] == "page"
    site.is_open.set()
    assert value_of(ada, tab_id, "window.mark") == "kept"
    assert generation_of(ada, tab_id) == 1


# --- Parts ------------------------------------------------------------------------------------------------------


def _thaw(process: psutil.Process) -> None:
    if is_alive(process):
        process.send_signal(signal.SIGCONT)
