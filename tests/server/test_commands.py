"""Commands on one tab of a real page: one at a time, each with one outcome."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from .conftest import act, open_session

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture
def tab_id(ada: httpx.Client) -> str:
    return str(open_session(ada)["tabs"][0]["tabId"])


def test_a_busy_tab_refuses_who_will_not_wait_and_says_who_has_it(ada: httpx.Client, tab_id: str) -> None:
    with ThreadPoolExecutor(1) as callers:
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
        slow = callers.submit(act, ada, tab_id, "evaluate", expression="new Promise(() => {})", **patient)
        while (refused := act(ada, tab_id, "evaluate", expression="1")).status_code == 200:
            pass
        assert refused.status_code == 423
        assert refused.json()["code"] == "tab_busy"
        assert refused.json()["retryable"]
        assert refused.json()["details"]["holder"]
        assert int(refused.headers["Retry-After"]) >= 1
        command_id = ada.get(f"/tabs/{tab_id}").json()["holder"]["commandId"]
        assert ada.post(f"/commands/{command_id}/cancel").json()["outcome"] == "cancelled"
        assert slow.result().json()["outcome"] == "cancelled"


def test_the_outcome_of_a_command_can_be_read_afterwards(ada: httpx.Client, tab_id: str) -> None:
    good = act(ada, tab_id, "evaluate", expression="({a: [1, null]})").json()
    bad = act(ada, tab_id, "evaluate", expression="throw new Error('no')")
    assert (bad.status_code, bad.json()["code"]) == (422, "javascript_error")
    read = ada.get(f"/commands/{good['commandId']}").json()
    assert (read["outcome"], read["result"], read["ok"]) == ("completed", {"a": [1, None]}, True)
    failed = ada.get(f"/commands/{bad.json()['details']['commandId']}").json()
    assert (failed["outcome"], failed["error"]["code"], failed["ok"]) == ("failed", "javascript_error", False)


def test_a_command_id_nobody_gave_out_is_not_found(ada: httpx.Client) -> None:
    assert ada.get("/commands/cmd_nonsense").json()["code"] == "command_not_found"
