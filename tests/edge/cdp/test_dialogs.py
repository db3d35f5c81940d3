"""How a client parts with pages that have dialogs: not while one is open that nobody can answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tabherd.browsers.port import CdpFailure
from tabherd.edge.cdp.dialogs import ClientDialogs
from tabherd.edge.cdp.rules import Kind
from tabherd.edge.cdp.tree import Node, Tree

PAGE, TAB = "P" * 32, "T" * 32
STRANDED = "Not attached to an active page"
CALM = "No dialog is showing"


class Scene:
    """A client with one page, attached through its tab as Puppeteer does."""

    def __init__(self) -> None:
        self.tree = Tree(Node(Kind.ROOT, "", "", "", ""))
        self.page = Node(Kind.PAGE, PAGE, TAB, "target", "target")
        self.tree.add(Node(Kind.TAB, TAB, "", "tab", ""))
        self.tree.add(self.page)
        # What Chromium refuses answers with; None: it takes them.
        self.refusal: str | None = CALM
        self.asked: list[str] = []
        self.given_up: list[str] = []
        # How many answer the dialogs of the page.
        self.answering = 0
        registry = SimpleNamespace(take_dialogs=lambda _: self._answer(1), leave_dialogs=lambda _: self._answer(-1))
        self.dialogs = ClientDialogs(self, self.tree, registry, self._give_up)  # type: ignore[arg-type]
        self.dialogs.take(self.page)

    def hear(self, what: str) -> None:
        """Opening or Closed."""
        self.dialogs.note(
            b'{"method":"Page.javascriptDialog%b","params":{},"sessionId":"%b"}' % (what.encode(), b"P" * 32)
        )

    def inject(self, method: str, params: Mapping[str, Any], session_id: str) -> asyncio.Future[dict[str, Any]]:
        self.asked.append(session_id)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.refusal is None:
            answer.set_result({})
        else:
            answer.set_exception(CdpFailure(method, -32000, self.refusal))
        return answer

    def send(self, message: bytes) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...

    def _answer(self, more: int) -> None:
        self.answering += more

    async def _give_up(self, page_id: str) -> None:
        self.given_up.append(page_id)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_a_page_whose_open_dialog_nobody_can_answer_is_closed_first(scene: Scene) -> None:
    scene.hear("Opening")
    scene.refusal = STRANDED
    await scene.dialogs.calm([PAGE])
    assert scene.given_up == ["target"]


@pytest.mark.parametrize("refusal", [None, CALM])
async def test_one_that_could_be_answered_is_left_as_it_is(scene: Scene, refusal: str | None) -> None:
    scene.hear("Opening")
    scene.refusal = refusal
    await scene.dialogs.calm([PAGE])
    assert (scene.asked, scene.given_up) == ([PAGE], [])


@pytest.mark.parametrize("heard", [[], ["Opening", "Closed"]], ids=["none opened", "it is closed"])
async def test_a_page_that_is_about_to_have_its_next_document_is_not_closed_for_that(
    scene: Scene, heard: list[str]
) -> None:
    for what in heard:
        scene.hear(what)
    scene.refusal = STRANDED
    await scene.dialogs.calm([PAGE])
    assert scene.given_up == []


async def test_a_client_that_leaves_answers_nothing_more_and_strands_nobody(scene: Scene) -> None:
    scene.hear("Opening")
    scene.refusal = STRANDED
    await scene.dialogs.leave_all()
    assert (scene.given_up, scene.answering) == (["target"], 0)


async def test_a_page_ends_with_its_tab_and_with_the_connection_and_with_no_other(scene: Scene) -> None:
    ends = [scene.dialogs.ending_with(id) for id in ("", TAB, PAGE, "X" * 32)]
    assert ends == [[PAGE], [PAGE], [PAGE], []]
    scene.dialogs.leave(PAGE)
    assert (scene.dialogs.ending_with(TAB), scene.answering) == ([], 0)
