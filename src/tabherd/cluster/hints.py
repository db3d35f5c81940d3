"""Hints between nodes: that there may be something to do. Nothing rests on them; whoever is told looks for itself.

A hint may come late, twice or never, so whoever listens also looks by itself now and then. Nobody hears its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger("cluster")

# Hears what was said under its topic.
Hearer = Callable[[str], None]


class Hints(Protocol):
    """Where nodes tell each other."""

    def tell(self, topic: str, text: str = "") -> None:
        """Let the other nodes know, soon or never. Costs the caller nothing and never fails."""
        ...

    def listen(self, topic: str, hearer: Hearer) -> None:
        """Be told from now on. Called with an empty text when hints may have been missed."""
        ...


class Hearers:
    """Who listens on one node."""

    def __init__(self) -> None:
        self._by_topic: dict[str, list[Hearer]] = {}

    def add(self, topic: str, hearer: Hearer) -> None:
        self._by_topic.setdefault(topic, []).append(hearer)

    def hear(self, topic: str, text: str) -> None:
        """Call those who listen to that topic."""
        for hearer in tuple(self._by_topic.get(topic, ())):
            try:
                hearer(text)
            except Exception:
                # One that fails must not cost the others theirs.
                log.exception("bug: a hearer of hints failed", topic=topic)

    def hear_all(self) -> None:
        """Let everybody look for itself: nobody knows what was missed."""
        for topic in tuple(self._by_topic):
            self.hear(topic, "")


class LocalHub:
    """The same for nodes in one process: for tests, so it can lose hints and make them late."""

    def __init__(self) -> None:
        # Whether what is told is lost.
        self.is_losing = False
        # How late a hint is heard.
        self.delay_s = 0.0
        self._nodes: list[LocalHints] = []

    def join(self) -> LocalHints:
        """Another node."""
        node = LocalHints(self)
        self._nodes.append(node)
        return node

    def tell(self, teller: LocalHints, topic: str, text: str) -> None:
        """Have all others hear it, unless it is lost."""
        if self.is_losing:
            return
        loop = asyncio.get_running_loop()
        for node in self._nodes:
            if node is not teller:
                loop.call_later(self.delay_s, node.hearers.hear, topic, text)


class LocalHints:
    """Implements `Hints`: one node of a `LocalHub`, which makes it."""

    def __init__(self, hub: LocalHub) -> None:
        self._hub = hub
        self.hearers = Hearers()

    def tell(self, topic: str, text: str = "") -> None:
        self._hub.tell(self, topic, text)

    def listen(self, topic: str, hearer: Hearer) -> None:
        self.hearers.add(topic, hearer)
