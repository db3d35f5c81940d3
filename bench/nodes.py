"""`nodes`: what it costs that several nodes have to agree, and whether they do.

- *acquire*: the same crowd opens sessions at one node, and at three, each with a database of its own in one PostgreSQL
  whose commits wait for the disk; in turns. Callers pause between sessions, so that there is load but no queue, and
  as many warm contexts wait for them at the one as at the three together.
- *cap* and *fairness*: a crowd that wants far more than a pool's `max_active` hammers all three nodes. The cap is that
  of the whole cluster: it has to be reached, and never exceeded. One agent has five times as many callers as each of
  the others, and must not get more for it.
"""

from __future__ import annotations

from typing import Final

import uvloop

from bench import Figure, percentile
from bench.rig.hammer import Crowd, Found, hammer
from bench.rig.nodes import running_nodes
from bench.rig.postgres import Postgres, running_postgres
from bench.rig.server import Server

NODES: Final = 3
ROUNDS: Final = 5
ROUND_S: Final = 8.0
AGENTS: Final = 6
# Slow enough for the warm stocks to be refilled, so that what is measured is not Chromium's making of contexts.
CALM: Final = Crowd(callers={f"agent-{number}": 1 for number in range(NODES)}, hold_s=0.3, pause_s=0.7)
# Warm contexts of all nodes together.
WARM: Final = 6
BAR_TO_ONE: Final = 2.0

CAP: Final = 6
CROWD_S: Final = 15.0
GREEDY: Final = 15
OTHERS: Final = 3
HUNGRY: Final = Crowd(
    callers={f"agent-{number}": OTHERS if number else GREEDY for number in range(AGENTS)}, hold_s=0.3, pause_s=0.0
)
BAR_JAIN: Final = 0.98
# Each node needs no more than one browser for what is asked of it here.
SETTINGS: Final = {"pools__default__browsers_max": 1, "pools__default__sessions_per_browser": 50}


def run() -> dict[str, Figure]:
    with running_postgres(is_durable=True) as postgres:
        return _acquire_figures(postgres) | _crowd_figures(postgres)


def _acquire_figures(postgres: Postgres) -> dict[str, Figure]:
    with (
        running_nodes(1, _database(postgres, "one"), pools__default__warm=WARM, **SETTINGS) as alone,
        running_nodes(NODES, _database(postgres, "several"), pools__default__warm=WARM // NODES, **SETTINGS) as nodes,
    ):
        ones: list[float] = []
        several: list[float] = []
        # What is made at first use is made.
        _hammered(alone, CALM, 1.0)
        _hammered(nodes, CALM, 1.0)
        for _ in range(ROUNDS):
            ones.extend(_hammered(alone, CALM, ROUND_S).opens_ms)
            several.extend(_hammered(nodes, CALM, ROUND_S).opens_ms)
    at_one = Figure.median_of(ones, "ms")
    at_several = Figure.median_of(several, "ms", others={"one node": ones})
    return {
        f"acquire_{NODES}_nodes_p50": at_several,
        f"acquire_{NODES}_nodes_p99": Figure(
            ours=percentile(several, 99), unit="ms", others={"one node": percentile(ones, 99)}
        ),
        f"acquire_{NODES}_nodes_to_one": Figure(ours=at_several.ours / at_one.ours, unit="ratio", at_most=BAR_TO_ONE),
    }


def _crowd_figures(postgres: Postgres) -> dict[str, Figure]:
    with running_nodes(NODES, _database(postgres, "crowd"), pools__default__max_active=CAP, **SETTINGS) as nodes:
        _hammered(nodes, CALM, 1.0)
        found = _hammered(nodes, HUNGRY, CROWD_S)
    return {
        f"held_at_once_of_{CAP}": Figure(ours=found.held_max, unit="sessions", at_most=CAP),
        "cap_is_reached": Figure(ours=found.held_max / CAP, unit="ratio", at_least=1.0),
        f"jain_of_{AGENTS}_agents": Figure(ours=found.jain, unit="index", at_least=BAR_JAIN),
        "sessions_per_s": Figure(ours=sum(found.given.values()) / CROWD_S, unit="/s"),
        "wait_p50": Figure.median_of(found.opens_ms, "ms"),
    }


def _database(postgres: Postgres, name: str) -> str:
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres.url_of(name)


def _hammered(nodes: list[Server], crowd: Crowd, seconds: float) -> Found:
    return uvloop.run(hammer(nodes, crowd, seconds))
