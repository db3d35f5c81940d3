"""What was seen during a demo, by whom: the evidence that `recount` judges, and nothing that judges.

Times are milliseconds of the machine's monotonic clock, which all processes share; only `Hit.page_ms` is a page's own.
Agents tell what they do as `Told`, in this process by a call and from a process of their own as lines of JSON.
"""

from __future__ import annotations

import time
from typing import Literal, TypeAlias

import msgspec

# Claimed visit of what happens in the one session that several agents share.
BOARD = "board"

# arrive: at the login, with whatever cookies there were before. page: a page was asked for. add: a line was written.
# begin, end: a command says that it starts and ends its work in the page. pulse: the page lives.
What: TypeAlias = Literal["arrive", "page", "add", "begin", "end", "pulse"]


def now_ms() -> float:
    """This moment, on the clock that all of the demo's processes share."""
    return time.monotonic() * 1000


class Evidence(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A thing that was seen."""


# --- What the site saw --------------------------------------------------------------------------------------------


class Hit(Evidence, frozen=True, kw_only=True):
    """One request that the site was sent by a page."""

    at_ms: float
    what: What
    # Who did it, as the command that did it says.
    agent: str
    visit: str
    # Who did it, as the browser's cookies say; empty: it had none.
    cookie_agent: str = ""
    cookie_visit: str = ""
    # Of begin and end: the tab that the command was sent to.
    tab: str = ""
    # Of add, begin and end: the one thing that it is; nothing else has the same.
    id: str = ""
    # The document it came from, by a number that the document itself drew when it was loaded.
    document: str = ""
    # Of begin and end: when, by the page's own clock.
    page_ms: float = 0.0


# --- What the agents saw ------------------------------------------------------------------------------------------


class Phase(Evidence, frozen=True, kw_only=True, tag="phase"):
    """What an agent is doing, for people who look."""

    agent: str
    doing: str


class Granted(Evidence, frozen=True, kw_only=True, tag="granted"):
    """An agent has a session."""

    agent: str
    visit: str
    session: str
    tab: str
    wanted_ms: float
    at_ms: float


class Left(Evidence, frozen=True, kw_only=True, tag="left"):
    """An agent is done with its session, just before it says so to the server."""

    agent: str
    visit: str
    at_ms: float


class Answer(Evidence, frozen=True, kw_only=True, tag="answer"):
    """How a command ended, as its agent heard."""

    agent: str
    visit: str
    kind: str
    # Empty when it was refused before it was accepted.
    command: str
    # completed, failed, timed_out, cancelled or outcome_unknown; a refusal's code when it was not accepted.
    outcome: str
    sent_ms: float
    heard_ms: float
    # Of an evaluate on the shared tab: the id of its marks.
    mark: str = ""


class Line(Evidence, frozen=True, kw_only=True, tag="line"):
    """A line that an agent saw arrive on its page."""

    agent: str
    visit: str
    id: str


class Reading(Evidence, frozen=True, kw_only=True, tag="reading"):
    """What an agent read back from its page at the end: the ids of all lines there."""

    agent: str
    visit: str
    ids: list[str]


class Mishap(Evidence, frozen=True, kw_only=True, tag="mishap"):
    """An agent was told that something went wrong, and went on."""

    agent: str
    code: str
    at_ms: float


Told: TypeAlias = Phase | Granted | Left | Answer | Line | Reading | Mishap


# --- What was done to them, and what came of it -------------------------------------------------------------------


class Happening(Evidence, frozen=True, kw_only=True):
    """An event that the server published, when the demo heard it."""

    at_ms: float
    type: str
    session: str
    reason: str


class AgentDeath(Evidence, frozen=True, kw_only=True):
    """An agent's process was killed while it had a session."""

    agent: str
    visit: str
    session: str
    killed_ms: float


class BrowserDeath(Evidence, frozen=True, kw_only=True):
    """A Chromium was killed with all its processes."""

    pid: int
    killed_ms: float


class Held(Evidence, frozen=True, kw_only=True):
    """A session as the server describes it."""

    session: str
    state: str
    fence: int
    tabs: list[str]
    end_reason: str = ""


class BrokerDeath(Evidence, frozen=True, kw_only=True):
    """The server was killed and started again on the same state."""

    killed_ms: float
    # When the next life was started, and when it said that it is ready.
    started_ms: float
    ready_ms: float
    before: list[Held]
    # The same sessions, asked for by the same ids.
    after: list[Held]


class Remains(Evidence, frozen=True, kw_only=True):
    """What there was of the demo's server while it ran, and what was left of it."""

    processes_before: int
    processes_after: int
    # Open sessions when all agents had gone.
    leases: int
    # Profiles and files of sessions that the server had not removed when it ended.
    directories: int


class Record(Evidence, frozen=True, kw_only=True):
    """Everything that was seen."""

    # The agents' names, and the most sessions that may be open at once.
    agents: list[str]
    cap: int
    # The session that several agents share; it is open all the time.
    board_session: str
    hits: list[Hit]
    told: list[Told]
    happenings: list[Happening]
    # Every end of a command in the audit trail: its id and outcome.
    audit: list[tuple[str, str]]
    # What the server answers when it is asked for the command: its outcome, by id.
    outcomes: dict[str, str]
    remains: Remains
    agent_death: AgentDeath | None = None
    browser_death: BrowserDeath | None = None
    broker_death: BrokerDeath | None = None
