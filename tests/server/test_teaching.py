"""Errors of elements over HTTP: a caller can follow what they say, without a person."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from .conftest import act, open_session

pytestmark = [pytest.mark.server, pytest.mark.browser]

# For what must first find an element, on a machine that may be busy with other things.
LIMIT_MS = 1_500
PAGE = """<button id=save-btn onclick="document.title = 'saved'">Save</button>
<div role=dialog aria-label=Cookies style='position:fixed;inset:0'>
<p style='height:90%'>We use them</p><button onclick='this.parentElement.remove()'>Accept all</button></div>"""


@pytest.fixture
def tab_id(ada: httpx.Client) -> str:
    tab_id = str(open_session(ada)["tabs"][0]["tabId"])
    assert act(ada, tab_id, "navigate", url="data:text/html," + quote(PAGE)).status_code == 200
    return tab_id


def test_what_the_errors_say_leads_to_the_click_that_was_meant(ada: httpx.Client, tab_id: str) -> None:
    missed = act(ada, tab_id, "click", selector="#sav-btn", timeoutMs=LIMIT_MS).json()
    assert missed["code"] == "element_not_found"
    meant = missed["details"]["candidates"][0]
    assert (meant["role"], meant["name"]) == ("button", "Save")
    assert f'Did you mean button "Save" [ref={meant["ref"]}]' in missed["action"]

    covered = act(ada, tab_id, "click", ref=meant["ref"], timeoutMs=LIMIT_MS).json()
    assert covered["code"] == "element_not_actionable"
    assert covered["details"]["coveredBy"] == "<p>We use them</p>"
    closer = covered["details"]["cover"]["closer"]
    assert f'Click button "Accept all" [ref={closer["ref"]}] to close dialog "Cookies"' in covered["action"]

    assert act(ada, tab_id, "click", ref=closer["ref"]).status_code == 200
    assert act(ada, tab_id, "click", ref=meant["ref"]).status_code == 200
    assert act(ada, tab_id, "evaluate", expression="document.title").json()["result"] == "saved"
