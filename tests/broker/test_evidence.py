"""A picture of the page in the error of a command that asked for one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.house import ADA, House, in_house
from tests.broker.queueing import failure_of, view

from tabherd import errors, wire
from tabherd.broker import evidence
from tabherd.broker.ledger import OUTCOME_MAX_CHARS
from tabherd.browsers.port import TabGone

PAGE_ANSWERS: tuple[type[errors.TabherdError], ...] = (
    errors.ElementNotFound,
    errors.ElementNotActionable,
    errors.StaleRef,
    errors.AmbiguousTarget,
    errors.NavigationFailed,
    errors.JavascriptError,
)


class Camera:
    """Takes the place of the action engine: what acts on a page fails, and pictures are taken as the test says."""

    def __init__(self, house: House, session: wire.SessionView, failure: Callable[[], Exception]) -> None:
        self.pictures = 0
        self.take: Callable[[], Awaitable[str]] = self._take
        self._house = house
        self._session = session
        self._failure = failure
        house.broker.commands._performing._perform = self._perform

    async def _perform(self, tab: Any, action: Any, progress: Any) -> Any:
        if isinstance(action, wire.Screenshot):
            running = self._house.tab(self._session).gate.running
            assert running is not None, "the tab is still the command's"
            self.pictures += 1
            return await self.take()
        if action.expression == "fine":
            return None
        if action.expression == "in vain":
            progress.waits("attached", target="#missing")
            await asyncio.get_running_loop().create_future()
        progress.acts()
        if action.expression == "hang":
            await asyncio.get_running_loop().create_future()
        raise self._failure()

    async def _take(self) -> str:
        return "cGljdHVyZQ=="


def missing() -> errors.TabherdError:
    return errors.ElementNotFound("No element matches.")


async def error_of(house: House, session: wire.SessionView, label: str = "fails", **fields: Any) -> errors.TabherdError:
    fields = {"screenshot_on_error": True, **fields}
    return await failure_of(asyncio.ensure_future(house.act(session, label, **fields)))


@pytest.mark.parametrize("kind", PAGE_ANSWERS)
@in_house()
async def test_what_the_page_answers_comes_with_a_picture(house: House, kind: type[errors.TabherdError]) -> None:
    session = await house.open()
    Camera(house, session, lambda: kind("no"))
    error = await error_of(house, session)
    assert (error.code, error.details["screenshot"]) == (kind.code, "cGljdHVyZQ==")


@pytest.mark.parametrize(
    "failure",
    [
        lambda: errors.InvalidSelector("no"),
        lambda: errors.InvalidRequest("no"),
        lambda: errors.StateConflict("no"),
        lambda: TabGone("no", was_sent=True),
    ],
    ids=["invalid_selector", "invalid_request", "conflict", "outcome_unknown"],
)
@in_house()
async def test_what_is_not_the_pages_answer_has_none(house: House, failure: Callable[[], Exception]) -> None:
    session = await house.open()
    camera = Camera(house, session, failure)
    await error_of(house, session)
    assert camera.pictures == 0


@in_house()
async def test_nobody_gets_a_picture_who_did_not_ask(house: House) -> None:
    session = await house.open()
    camera = Camera(house, session, missing)
    error = await error_of(house, session, screenshot_on_error=False)
    assert (camera.pictures, "screenshot" in error.details) == (0, False)


@in_house()
async def test_who_waited_in_vain_gets_one_after_the_time(house: House) -> None:
    session = await house.open()
    Camera(house, session, missing)
    error = await error_of(house, session, "in vain", timeout_ms=500)
    assert (error.code, "screenshot" in error.details) == ("element_not_found", True)
    assert view(house, session).state == "ready"


@in_house()
async def test_a_tab_that_is_quarantined_is_not_photographed(house: House) -> None:
    session = await house.open()
    camera = Camera(house, session, missing)
    error = await error_of(house, session, "hang", timeout_ms=500)
    assert (error.code, camera.pictures) == ("command_timed_out", 0)


@in_house()
async def test_a_page_that_cannot_be_photographed_says_why_and_the_error_stays(house: House) -> None:
    session = await house.open()
    camera = Camera(house, session, missing)

    async def never() -> str:
        return await asyncio.get_running_loop().create_future()

    async def gone() -> str:
        raise TabGone("The page is gone.", was_sent=True)

    async def refused() -> str:
        raise errors.InvalidRequest("not this one")

    async def huge() -> str:
        return "x" * (evidence.PICTURE_MAX_CHARS + 1)

    for way, reason in (
        (never, "within"),
        (gone, "gone"),
        (refused, "not this one"),
        (huge, "characters"),
    ):
        camera.take = way
        began = house.now
        error = await error_of(house, session)
        assert error.code == "element_not_found"
        assert "screenshot" not in error.details
        assert reason in error.details["screenshotError"]
        assert house.now - began <= evidence.PICTURE_LIMIT_S * 1000 + 100


@in_house()
async def test_between_two_documents_the_next_one_is_waited_for(house: House) -> None:
    session = await house.open()
    camera = Camera(house, session, lambda: errors.NavigationFailed("It could not be loaded."))

    async def third_time() -> str:
        if camera.pictures < 3:
            raise errors.StateConflict("The page does not allow this now: Not attached to an active page.")
        return "cGljdHVyZQ=="

    camera.take = third_time
    assert (await error_of(house, session)).details["screenshot"]


@in_house()
async def test_the_next_one_waits_until_the_picture_is_taken(house: House) -> None:
    session = await house.open()
    camera = Camera(house, session, missing)
    taken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def slowly() -> str:
        return await taken

    camera.take = slowly
    first = asyncio.ensure_future(error_of(house, session))
    await house.until(lambda: camera.pictures)
    second = asyncio.ensure_future(house.act(session, "fine", wait_policy="wait_with_timeout"))
    await asyncio.sleep(0.5)
    assert not second.done()
    taken.set_result("cGljdHVyZQ==")
    assert (await first).details["screenshot"]
    assert (await second).ok


@in_house()
async def test_the_end_of_the_session_does_not_wait_for_a_picture(house: House) -> None:
    session = await house.open()
    camera = Camera(house, session, missing)

    async def never() -> str:
        return await asyncio.get_running_loop().create_future()

    camera.take = never
    failing = asyncio.ensure_future(error_of(house, session))
    await house.until(lambda: camera.pictures)
    await house.release(session)
    error = await failing
    assert (error.code, "screenshotError" in error.details) == ("element_not_found", True)


@in_house()
async def test_the_picture_is_for_the_caller_and_is_not_kept(house: House) -> None:
    session = await house.open()
    Camera(house, session, missing)
    error = await error_of(house, session, idempotency_key="k")
    kept = (await house.broker.commands.get(ADA, error.details["commandId"])).error
    assert kept is not None
    assert (kept["code"], "screenshot" in kept["details"]) == ("element_not_found", False)
    again = await error_of(house, session, idempotency_key="k")
    assert (again.code, "screenshot" in again.details) == ("element_not_found", False)
    assert again.details["commandId"] == error.details["commandId"]


@in_house()
async def test_of_an_error_that_is_too_large_to_be_kept_its_code_and_message_are(house: House) -> None:
    session = await house.open()
    Camera(house, session, lambda: errors.JavascriptError("The page threw: no", stack="x" * OUTCOME_MAX_CHARS))
    error = await error_of(house, session, screenshot_on_error=False, idempotency_key="k")
    again = await error_of(house, session, screenshot_on_error=False, idempotency_key="k")
    assert (again.code, again.message) == ("javascript_error", "The page threw: no")
    assert again.details == {"commandId": error.details["commandId"]}


@in_house()
async def test_a_step_that_fails_has_its_picture_in_the_error_of_the_command(house: House) -> None:
    session = await house.open()
    Camera(house, session, missing)
    steps = wire.Steps(
        steps=[wire.Evaluate(expression="fine"), wire.Evaluate(expression="fails", screenshot_on_error=True)]
    )
    done = await house.broker.commands.run(ADA, session.tabs[0].tab_id, steps)
    assert done.error is not None
    assert done.error["details"]["screenshot"] == "cGljdHVyZQ=="
    assert "screenshot" not in done.result[-1]["error"]["details"]


@in_house()
async def test_only_the_step_that_failed_decides_about_the_picture(house: House) -> None:
    session = await house.open()
    camera = Camera(house, session, missing)
    steps = wire.Steps(
        steps=[wire.Evaluate(expression="fine", screenshot_on_error=True), wire.Evaluate(expression="fails")]
    )
    await house.broker.commands.run(ADA, session.tabs[0].tab_id, steps)
    assert camera.pictures == 0


@in_house()
async def test_steps_that_wait_in_vain_until_the_time_of_all_is_over_have_a_picture(house: House) -> None:
    session = await house.open()
    Camera(house, session, missing)
    steps = wire.Steps(
        steps=[wire.Evaluate(expression="fine"), wire.Evaluate(expression="in vain", screenshot_on_error=True)],
        timeout_ms=500,
    )
    error = await failure_of(asyncio.ensure_future(house.broker.commands.run(ADA, session.tabs[0].tab_id, steps)))
    assert (error.code, "screenshot" in error.details) == ("element_not_found", True)


@in_house()
async def test_a_task_takes_no_picture_because_it_keeps_no_details(house: House) -> None:
    session = await house.open()
    camera = Camera(house, session, missing)
    action = wire.Evaluate(expression="fails", screenshot_on_error=True)
    failing = house.broker.commands.run(ADA, session.tabs[0].tab_id, action, is_recorded=False)
    await failure_of(asyncio.ensure_future(failing))
    assert camera.pictures == 0
