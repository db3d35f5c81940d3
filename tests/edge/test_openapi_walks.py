"""Walks through our own description: what one answer gave (a session, a tab, a task, a lock, a command) is used by the
next request, as the links of the description say, on a whole server with a real broker; and every answer on the way is
documented."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.core.transport import Response
from schemathesis.specs.openapi import stateful
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tabherd import wire
from tabherd.actions.progress import Progress
from tabherd.edge import openapi
from tabherd.edge.routes import ROUTES

from .control_house import LIMIT_S, Pages, house
from .openapi_seed import chosen_seed, replay

CHECKS: Final = [status_code_conformance, content_type_conformance, response_schema_conformance]
STEPS: Final = 12
# How many times as many walks a long run takes.
LONG: Final = 20
# How many rounds of walks may be needed to reach every operation; nearly always one or two.
ROUNDS_MAX: Final = 8
# Of a task that is still there when it is cancelled, however late that is.
FOR_EVER_MS: Final = 60_000
# Longer than that nothing is to wait, whatever a walk asks for.
WAIT_MAX_MS: Final = 20
SETTINGS: Final[dict[str, Any]] = {
    "auth": {"rate_per_s": 1_000_000, "rate_burst": 1_000_000},
    # A first session waits for its browser, however busy the machine is.
    "pools": {"default": {"browsers_max": 1, "warm": 0, "acquire_wait_ms": 10_000}},
}
# The first of each kind in a walk says this, so that there is something to go on with: what is made of the description
# alone is mostly well formed and seldom of use.
PLAIN: Final[dict[str, Any]] = {
    "POST /sessions": {},
    "POST /tabs/{tabId}/action": {"kind": "evaluate", "expression": "1"},
    "POST /tasks": {"action": "wait", "params": {"ms": FOR_EVER_MS}},
}


class Way(NamedTuple):
    """Where walks go and begin, and what they must have come to and found there, or they have proved nothing."""

    paths: str
    roots: tuple[str, ...]
    walks: int
    reached: frozenset[str]


WAYS: Final = {
    "sessions": Way(
        "^/sessions(/{sessionId}(/tabs|/heartbeat)?)?$",
        ("POST /sessions",),
        2,
        frozenset(
            (
                "GET /sessions/{sessionId}",
                "POST /sessions/{sessionId}/heartbeat",
                "POST /sessions/{sessionId}/tabs",
                "DELETE /sessions/{sessionId}",
            )
        ),
    ),
    "tabs": Way(
        "^/(sessions$|tabs/)",
        ("POST /sessions",),
        2,
        frozenset(("GET /tabs/{tabId}", "POST /tabs/{tabId}/action", "POST /tabs/{tabId}/lock")),
    ),
    "commands": Way(
        "^/(sessions$|tabs/{tabId}/action$|commands)", ("POST /sessions",), 2, frozenset(("GET /commands/{commandId}",))
    ),
    "tasks": Way(
        "^/tasks",
        ("POST /tasks", "POST /tasks/batch"),
        3,
        frozenset(("GET /tasks/{taskId}", "POST /tasks/{taskId}/cancel")),
    ),
    "locks": Way(
        "^/locks", ("POST /locks/{name}",), 3, frozenset(("POST /locks/{name}/renew", "DELETE /locks/{name}"))
    ),
}


class AnyAction(Pages):
    """Pages on which every action succeeds at once, but for one that lasts until the server is to end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = asyncio.Event()

    async def perform(self, tab: Any, action: wire.AnyAction, progress: Progress) -> Any:
        if isinstance(action, wire.Wait) and action.ms == FOR_EVER_MS:
            await self.is_over.wait()
        await asyncio.sleep(0)
        return {"url": action.url, "title": ""} if isinstance(action, wire.Navigate) else None


class Host:
    """Servers, one after the other, in a thread of its own: a walk blocks the one it is in."""

    def __init__(self, files: Path) -> None:
        self._files = files
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._open = AsyncExitStack()

    def start(self) -> tuple[str, str]:
        """A server in which nothing has happened yet: its address and a token of an admin."""

        async def begin() -> tuple[str, str]:
            pages = AnyAction()
            here = await self._open.enter_async_context(house(SETTINGS, files_dir=self._files, pages=pages))
            self._open.callback(pages.is_over.set)
            token, _ = await here.credentials.create("walker", ["admin"])
            return f"http://127.0.0.1:{here.port}", token

        return asyncio.run_coroutine_threadsafe(begin(), self._loop).result(LIMIT_S)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._open.aclose(), self._loop).result(LIMIT_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    one = Host(tmp_path)
    yield one
    one.close()


def hurried(value: Any) -> Any:
    """The same request, without patience."""
    match value:
        case dict():
            return {
                key: min(inner, WAIT_MAX_MS)
                if key in ("waitMs", "timeoutMs") and isinstance(inner, int)
                else hurried(inner)
                for key, inner in value.items()
            }
        case list():
            return [hurried(inner) for inner in value]
        case _:
            return value


def walk(host: Host, way: Way, monkeypatch: pytest.MonkeyPatch, seed: int, walks: int) -> set[str]:
    """Take the walks of that seed; the operations that succeeded on the way."""
    # Left to itself it guesses, and begins with tabs of sessions that nobody has opened.
    monkeypatch.setattr(stateful, "is_likely_root_transition", lambda operation, *_: operation.label in way.roots)
    seen: Counter[tuple[str, bool]] = Counter()
    schema = schemathesis.openapi.from_dict(openapi.document(ROUTES, "1.0")).include(path_regex=way.paths)
    # Only the links that the document has.
    schema.config.phases.stateful.inference.algorithms.clear()
    schema.config.generation.update(modes=[schemathesis.GenerationMode.POSITIVE])

    class Walk(schema.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            self.url, self.token = host.start()
            self.plain = dict(PLAIN)

        def teardown(self) -> None:
            host.stop()

        def before_call(self, case: Case) -> None:
            case.body = dict(self.plain.pop(case.operation.label)) if case.operation.label in self.plain else case.body
            case.body, case.query = hurried(case.body), hurried(case.query)
            if "/action" in case.operation.label and isinstance(case.body, dict):
                # Without a limit of its own, an action waits long for a tab that a person has.
                case.body.setdefault("timeoutMs", WAIT_MAX_MS)
            for name, value in case.path_parameters.items():
                # A client resolves such a path by itself, and asks for another one. A task that was refused has no id.
                case.path_parameters[name] = "nothing" if unquote(value) in ("", ".", "..") else value

        def get_call_kwargs(self, case: Case) -> dict[str, Any]:
            return {"base_url": self.url, "headers": {"Authorization": f"Bearer {self.token}"}, "timeout": LIMIT_S}

        def validate_response(self, response: Response, case: Case, **_: Any) -> None:
            assert response.status_code != 500, response.text
            seen[case.operation.label, response.status_code < 300] += 1
            case.validate_response(response, checks=CHECKS)

    hypothesis.seed(seed)(Walk)
    Walk.run(
        settings=settings(
            max_examples=walks,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=False,
            database=None,
            # A walk that fails is short enough to be read.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
    )
    return {label for label, is_good in seen if is_good}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_what_answers_give_is_used_by_later_requests_and_every_answer_is_documented(
    host: Host, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Names in answers are random, and so is what a walk makes of them: walks go on until they have been everywhere.
    reached: set[str] = set()
    for seed in range(ROUNDS_MAX):
        reached |= walk(host, way, monkeypatch, seed, way.walks)
        if reached >= way.reached:
            break
    assert reached >= way.reached


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_every_answer_on_a_walk_is_documented_whatever_the_seed(
    host: Host, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = chosen_seed()
    with replay(seed, __file__):
        walk(host, way, monkeypatch, seed, way.walks * LONG)
