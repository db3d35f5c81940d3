"""The crowd of agents notices what is another's, what is lost and what is there twice."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import msgspec
import pytest
from bench.rig.caller import Line
from bench.rig.working_crowd import CLICKS, Found, _work

pytestmark = pytest.mark.release


class House(msgspec.Struct):
    """Answers as a server with one page does."""

    # What the page has too many or too few of.
    amiss: int = 0
    # Whose cookie it has.
    cookie: str = "booth=ann"
    state: str = "done"
    clicks: int = 0
    value: str = ""

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        if path == "/tasks/batch":
            self.clicks += len(body["tasks"])
            return {"tasks": [{"taskId": "tsk_1"}] * len(body["tasks"])}
        if path.startswith("/tasks/"):
            return {"state": self.state, "error": None}
        return {"ok": True, "result": self._acted(body)}

    def _acted(self, body: dict[str, Any]) -> Any:
        match body["kind"], body.get("expression", ""):
            case "click", _:
                self.clicks += 1
            case "fill", _:
                self.value = body["value"]
            case "snapshot", _:
                return "heading ann"
            case "evaluate", expression if "textContent" in expression:
                return ["ann", self.cookie, "", 0]
            case "evaluate", expression if "#name" in expression:
                return [self.value, self.cookie, "ann", self.clicks + self.amiss]
        return None


async def worked(house: House) -> Found:
    found = Found()
    await _work(cast(Line, house), "ann", "tab_1", "a word", found)
    return found


async def test_an_agent_that_finds_only_its_own_has_nothing_to_tell() -> None:
    found = await worked(House())
    assert not found.cross_talk
    assert not found.lost
    assert not found.repeated


async def test_the_cookie_of_another_is_cross_talk() -> None:
    found = await worked(House(cookie="booth=bob"))
    assert len(found.cross_talk) == 2
    assert "booth=bob" in found.cross_talk[0]


async def test_a_click_that_did_not_arrive_is_lost() -> None:
    assert (await worked(House(amiss=-1))).lost == [f"ann: {CLICKS - 1} of {CLICKS} clicks arrived"]


async def test_a_click_that_arrived_twice_is_repeated() -> None:
    assert (await worked(House(amiss=1))).repeated == [f"ann: {CLICKS + 1} clicks arrived of {CLICKS}"]


async def test_a_task_that_did_not_end_well_is_lost() -> None:
    assert len((await worked(House(state="failed"))).lost) == 3


def test_equal_work_is_perfectly_fair_and_all_work_for_one_is_not() -> None:
    assert Found(worked=Counter(a=5, b=5)).jain == 1.0
    assert Found(worked=Counter({"a": 10, "b": 0})).jain == pytest.approx(0.5)
