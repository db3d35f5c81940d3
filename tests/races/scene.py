"""Two programs that want the same of one agent at the same moment, brought to the one point where that matters.

`meet` is called between looking and acting. It returns when every other program is at that point too, or can get no
further: because it is over, or because it stands in line for the agent's lock. So without a lock both have looked
before either acts, each time; with it the second one looks when the first has acted. No clock decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final

import pytest
from tests.locks.company import LIMIT_S, is_awaited, together, until
from tests.races.desk import Cabinet, Desk

from tabherd.locks import HeldLock, advisory_lock, advisory_lock_or_skip

# The agent that all of them want something of, where one is enough.
AGENT: Final = 42

with_and_without = pytest.mark.parametrize("is_guarded", [False, True], ids=["without the guard", "with the guard"])


class Scene:
    """One race, on one backend of locks and the rows that are kept beside it."""

    def __init__(self, url: str, namespace: int, cabinet: Cabinet) -> None:
        self.url: Final = url
        # No other scene has it.
        self.namespace: Final = namespace
        self.cabinet: Final = cabinet
        self._here = threading.local()
        self._parties = 0
        # Programs, by number, that have come to the point or are over; and those that are over.
        self._came: set[int] = set()
        self._ended: set[int] = set()

    # --- What programs do -----------------------------------------------------------------------------------

    def lock(
        self, is_guarded: bool = True, agent: int = AGENT, timeout: float = LIMIT_S
    ) -> AbstractContextManager[HeldLock | None]:
        """The agent's lock, as something in the foreground takes it: it waits."""
        return advisory_lock(self.namespace, agent, timeout, self.url) if is_guarded else nullcontext()

    def lock_or_skip(self, is_guarded: bool = True, agent: int = AGENT) -> AbstractContextManager[bool]:
        """The same as something in the background takes it: it comes back another time."""
        return advisory_lock_or_skip(self.namespace, agent, self.url) if is_guarded else nullcontext(True)

    def meet(self) -> None:
        """Between looking and acting: go on when the others have come as far as they can."""
        self._came.add(self._here.number)
        until(lambda: len(self._came) == self._parties or self.is_awaited())

    def let_others_finish(self) -> None:
        """The same, but let the others act first if they can."""
        self._came.add(self._here.number)
        until(lambda: len(self._ended | {self._here.number}) == self._parties or self.is_awaited())

    def is_awaited(self, agent: int = AGENT) -> bool:
        """Whether somebody stands in line for the agent's lock."""
        return is_awaited(self.url, f"{self.namespace}:{agent}")

    # --- What the test does ---------------------------------------------------------------------------------

    def play(self, *programs: Callable[[Desk], Any]) -> list[Any]:
        """Run all of them at once, each in a thread and at a desk of its own; what they answer."""
        self._parties = len(programs)
        self._came, self._ended = set(), set()
        answers = together(*(partial(self._run, number, program) for number, program in enumerate(programs)))
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    def hire(self, *agents: int, state: str = "working") -> None:
        with self.cabinet.desk() as desk:
            for agent in agents:
                desk.hire(agent, state)

    def notes(self, agent: int = AGENT) -> list[str]:
        with self.cabinet.desk() as desk:
            return desk.notes(agent)

    def state(self, agent: int = AGENT) -> str:
        with self.cabinet.desk() as desk:
            return desk.state(agent)

    def _run(self, number: int, program: Callable[[Desk], Any]) -> Any:
        self._here.number = number
        try:
            with self.cabinet.desk() as desk:
                return program(desk)
        finally:
            self._came.add(number)
            self._ended.add(number)


def hear(signal: threading.Event) -> None:
    """Wait for what another program says."""
    assert signal.wait(LIMIT_S), "it was never said"
