"""Every state machine of tabherd, as tables, and the only function that moves along them.

A lifecycle is a table from (state, event) to the next state. What is not in the table cannot happen: `advance`
raises `IllegalMove` and, since states are values, nothing has changed. The diagrams in the docs are drawn from these
tables, so reading this file is reading the rules.

How to read one: `BROWSER[CRASHED]` is everything that may happen to a crashed browser. A state with no events is
terminal; a thing that reaches it never moves again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar


class BrowserState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"  # serves what it has, takes nothing new
    CRASHED = "crashed"
    BROKEN = "broken"  # circuit open: not started again before its time
    STOPPED = "stopped"


class BrowserEvent(StrEnum):
    LAUNCHED = "launched"  # the control socket answers
    DIED = "died"  # process exit, socket close, failed start, killed for hanging
    DRAIN = "drain"
    RETRY = "retry"
    TRIP = "trip"  # too many crashes
    HALF_OPEN = "half_open"  # one start is tried after the circuit's pause
    STOP = "stop"


class LeaseState(StrEnum):
    RESERVED = "reserved"  # counted against the caps, nothing created yet
    ACTIVE = "active"
    RECOVERING = "recovering"  # its browser died; the owner keeps it
    POOLED = "pooled"  # nobody's; its tab waits for the next caller of its key
    CLOSING = "closing"
    CLOSED = "closed"
    LOST = "lost"  # could not be recovered


class LeaseEvent(StrEnum):
    BIND = "bind"
    ABANDON = "abandon"  # creation failed, or the caller left while it was being made
    POOL = "pool"
    CHECKOUT = "checkout"
    BREAK = "break"  # the browser under it died
    RECOVER = "recover"
    LOSE = "lose"
    CLOSE = "close"
    CLOSED = "closed"  # what it had is disposed
    DROP = "drop"  # a pooled tab found dead or expired


class TabState(StrEnum):
    OPENING = "opening"
    READY = "ready"
    QUARANTINED = "quarantined"  # a command timed out and is not yet proven stopped
    PAUSED = "paused"  # a person has it
    DEAD = "dead"
    REBUILDING = "rebuilding"
    CLOSING = "closing"
    CLOSED = "closed"


class TabEvent(StrEnum):
    OPENED = "opened"
    FAIL = "fail"  # it could not be opened, or not be rebuilt
    QUARANTINE = "quarantine"
    PROVE = "prove"  # the timed-out command is proven stopped
    REBUILD = "rebuild"
    REBUILT = "rebuilt"
    DIE = "die"
    PAUSE = "pause"
    RESUME = "resume"
    CLOSE = "close"
    CLOSED = "closed"


class CommandState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    OUTCOME_UNKNOWN = "outcome_unknown"


class CommandEvent(StrEnum):
    GRANT = "grant"
    COMPLETE = "complete"
    FAIL = "fail"
    TIME_OUT = "time_out"
    CANCEL = "cancel"
    LOSE = "lose"  # the browser or the broker died after it was sent


class TaskState(StrEnum):
    QUEUED = "queued"
    ASSIGNED = "assigned"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"  # stored, never admitted


class TaskEvent(StrEnum):
    ASSIGN = "assign"
    SEND = "send"
    REQUEUE = "requeue"  # a crash before the send; after it only for idempotent tasks
    FINISH = "finish"
    FAIL = "fail"
    CANCEL = "cancel"


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"  # given up; the task is not affected


class DeliveryEvent(StrEnum):
    DELIVER = "deliver"  # the receiver has taken it
    RETRY = "retry"
    GIVE_UP = "give_up"  # after the last attempt


class NodeState(StrEnum):
    UP = "up"
    LEFT = "left"  # it has ended in order
    DEAD = "dead"  # others have declared it so, because it was silent
    GONE = "gone"  # nothing is left of it


class NodeEvent(StrEnum):
    JOIN = "join"
    LEAVE = "leave"
    DECLARE_DEAD = "declare_dead"
    INHERIT = "inherit"  # others have taken over all that it had


State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)
Table = dict[State, dict[Event, State]]

BROWSER: Final[Table[BrowserState, BrowserEvent]] = {
    BrowserState.STARTING: {
        BrowserEvent.LAUNCHED: BrowserState.READY,
        BrowserEvent.DIED: BrowserState.CRASHED,
        BrowserEvent.STOP: BrowserState.STOPPED,
    },
    BrowserState.READY: {
        BrowserEvent.DRAIN: BrowserState.DRAINING,
        BrowserEvent.DIED: BrowserState.CRASHED,
    },
    BrowserState.DRAINING: {
        BrowserEvent.STOP: BrowserState.STOPPED,
        BrowserEvent.DIED: BrowserState.CRASHED,
    },
    BrowserState.CRASHED: {
        BrowserEvent.RETRY: BrowserState.STARTING,
        BrowserEvent.TRIP: BrowserState.BROKEN,
    },
    BrowserState.BROKEN: {
        BrowserEvent.HALF_OPEN: BrowserState.STARTING,
        BrowserEvent.STOP: BrowserState.STOPPED,
    },
    BrowserState.STOPPED: {},
}

LEASE: Final[Table[LeaseState, LeaseEvent]] = {
    LeaseState.RESERVED: {
        LeaseEvent.BIND: LeaseState.ACTIVE,
        LeaseEvent.ABANDON: LeaseState.CLOSED,
    },
    LeaseState.ACTIVE: {
        LeaseEvent.POOL: LeaseState.POOLED,
        LeaseEvent.BREAK: LeaseState.RECOVERING,
        LeaseEvent.CLOSE: LeaseState.CLOSING,
    },
    LeaseState.RECOVERING: {
        LeaseEvent.RECOVER: LeaseState.ACTIVE,
        LeaseEvent.LOSE: LeaseState.LOST,
        LeaseEvent.CLOSE: LeaseState.CLOSING,
    },
    LeaseState.POOLED: {
        LeaseEvent.CHECKOUT: LeaseState.ACTIVE,
        LeaseEvent.DROP: LeaseState.CLOSED,
        LeaseEvent.CLOSE: LeaseState.CLOSING,
    },
    LeaseState.CLOSING: {LeaseEvent.CLOSED: LeaseState.CLOSED},
    LeaseState.CLOSED: {},
    LeaseState.LOST: {},
}

TAB: Final[Table[TabState, TabEvent]] = {
    TabState.OPENING: {
        TabEvent.OPENED: TabState.READY,
        TabEvent.FAIL: TabState.CLOSED,
    },
    TabState.READY: {
        TabEvent.QUARANTINE: TabState.QUARANTINED,
        TabEvent.DIE: TabState.DEAD,
        TabEvent.PAUSE: TabState.PAUSED,
        TabEvent.CLOSE: TabState.CLOSING,
    },
    TabState.QUARANTINED: {
        TabEvent.PROVE: TabState.READY,
        TabEvent.REBUILD: TabState.REBUILDING,
        TabEvent.DIE: TabState.DEAD,
        TabEvent.CLOSE: TabState.CLOSING,
    },
    TabState.PAUSED: {
        TabEvent.RESUME: TabState.READY,
        TabEvent.DIE: TabState.DEAD,
        TabEvent.CLOSE: TabState.CLOSING,
    },
    TabState.DEAD: {
        TabEvent.REBUILD: TabState.REBUILDING,
        TabEvent.CLOSE: TabState.CLOSING,
    },
    TabState.REBUILDING: {
        TabEvent.REBUILT: TabState.READY,
        TabEvent.FAIL: TabState.CLOSED,
        TabEvent.CLOSE: TabState.CLOSING,
    },
    TabState.CLOSING: {TabEvent.CLOSED: TabState.CLOSED},
    TabState.CLOSED: {},
}

COMMAND: Final[Table[CommandState, CommandEvent]] = {
    CommandState.QUEUED: {
        CommandEvent.GRANT: CommandState.RUNNING,
        CommandEvent.TIME_OUT: CommandState.TIMED_OUT,
        CommandEvent.CANCEL: CommandState.CANCELLED,
        CommandEvent.FAIL: CommandState.FAILED,
    },
    CommandState.RUNNING: {
        CommandEvent.COMPLETE: CommandState.COMPLETED,
        CommandEvent.FAIL: CommandState.FAILED,
        CommandEvent.TIME_OUT: CommandState.TIMED_OUT,
        CommandEvent.CANCEL: CommandState.CANCELLED,
        CommandEvent.LOSE: CommandState.OUTCOME_UNKNOWN,
    },
    CommandState.COMPLETED: {},
    CommandState.FAILED: {},
    CommandState.TIMED_OUT: {},
    CommandState.CANCELLED: {},
    CommandState.OUTCOME_UNKNOWN: {},
}

TASK: Final[Table[TaskState, TaskEvent]] = {
    TaskState.QUEUED: {
        TaskEvent.ASSIGN: TaskState.ASSIGNED,
        TaskEvent.CANCEL: TaskState.CANCELLED,
        TaskEvent.FAIL: TaskState.FAILED,
    },
    TaskState.ASSIGNED: {
        TaskEvent.SEND: TaskState.RUNNING,
        TaskEvent.REQUEUE: TaskState.QUEUED,
        TaskEvent.FAIL: TaskState.FAILED,
        TaskEvent.CANCEL: TaskState.CANCELLED,
    },
    TaskState.RUNNING: {
        TaskEvent.FINISH: TaskState.DONE,
        TaskEvent.FAIL: TaskState.FAILED,
        TaskEvent.CANCEL: TaskState.CANCELLED,
        TaskEvent.REQUEUE: TaskState.QUEUED,
    },
    TaskState.DONE: {},
    TaskState.FAILED: {},
    TaskState.CANCELLED: {},
    TaskState.REJECTED: {},
}

DELIVERY: Final[Table[DeliveryState, DeliveryEvent]] = {
    DeliveryState.PENDING: {
        DeliveryEvent.DELIVER: DeliveryState.DELIVERED,
        DeliveryEvent.RETRY: DeliveryState.PENDING,
        DeliveryEvent.GIVE_UP: DeliveryState.FAILED,
    },
    DeliveryState.DELIVERED: {},
    DeliveryState.FAILED: {},
}

NODE: Final[Table[NodeState, NodeEvent]] = {
    NodeState.UP: {
        # Killed, and back before anybody has missed it.
        NodeEvent.JOIN: NodeState.UP,
        NodeEvent.LEAVE: NodeState.LEFT,
        NodeEvent.DECLARE_DEAD: NodeState.DEAD,
    },
    NodeState.LEFT: {NodeEvent.JOIN: NodeState.UP, NodeEvent.INHERIT: NodeState.GONE},
    NodeState.DEAD: {NodeEvent.JOIN: NodeState.UP, NodeEvent.INHERIT: NodeState.GONE},
    NodeState.GONE: {NodeEvent.JOIN: NodeState.UP},
}


class IllegalMove(Exception):
    """The table has no such move. Ours to prevent, so not part of the error tree that users see."""

    def __init__(self, state: StrEnum, event: StrEnum) -> None:
        super().__init__(f"{type(state).__name__}: {state} does not take {event}")
        self.state = state
        self.event = event


def advance(table: Table[State, Event], state: State, event: Event) -> State:
    """The next state, or `IllegalMove`. The only way a state changes."""
    try:
        return table[state][event]
    except KeyError:
        raise IllegalMove(state, event) from None


def is_terminal(table: Table[State, Event], state: State) -> bool:
    """Whether nothing can happen to it any more."""
    return not table[state]
