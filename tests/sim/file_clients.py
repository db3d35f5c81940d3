"""Files of sessions in a simulated history: uploaded piece by piece, listed and read, also behind a takeover.

The disk is a real one, and its threads are the loop's: what each does is done in one moment of virtual time. Only some
histories have files, because a disk costs more than everything else in them.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from tabherd import wire
from tabherd.broker.broker import Broker
from tabherd.broker.file_disk import Incoming

from .fakes import NO_FILES
from .script import Deed, Script
from .verb_rules import ASKER

if TYPE_CHECKING:
    from .world import World

# How many histories have files.
RATE = 0.3


class FileDir:
    """The directory of one history; it outlives every life of the broker."""

    def __init__(self, script: Script) -> None:
        self.is_used = script.chance("files").random() < RATE
        self.path = Path(tempfile.mkdtemp(prefix="tabherd-sim-")) if self.is_used else NO_FILES
        # Every upload that was begun.
        self._begun: list[Incoming] = []

    def note_thread(self, work: Callable[..., Any]) -> None:
        """A thread is about to do that."""
        match work:
            case partial(args=(MethodType(__self__=Incoming() as incoming, __name__="begin"), *_)):
                self._begun.append(incoming)
            case _:
                pass

    def left(self) -> Iterator[str]:
        """What outlives everybody who left."""
        if self.is_used and (names := sorted(path.name for path in self.path.iterdir())):
            yield f"files outlive their sessions: {names}"

    def remove(self) -> None:
        """Close what killed brokers had open, as an operating system would, and leave nothing."""
        for incoming in self._begun:
            if incoming._file is not None:
                incoming._file.close()
        if self.is_used:
            shutil.rmtree(self.path, ignore_errors=True)


class FileClients:
    """Whoever has files."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def use(self, deed: Deed, agent: str, view: wire.SessionView) -> None:
        """Those of whoever has the session later are no business of the agent's."""
        ASKER.set(agent)
        await asyncio.sleep(deed.random() * 0.03)
        await (self._upload if deed.random() < 0.6 else self._read)(deed, agent, view.session_id)

    async def _upload(self, deed: Deed, agent: str, session_id: str) -> None:
        from .clients import caller_of

        world, name = self._world, self._world.mint(f"{agent}-file")
        pauses = [deed.random() * 0.02 for _ in range(deed.randrange(1, 4))]

        async def pieces() -> AsyncIterator[bytes]:
            for pause_s in pauses:
                yield name.encode()
                await asyncio.sleep(pause_s)

        caller = caller_of(agent, 0)
        await world.call("upload file", lambda broker: broker.files.upload(caller, session_id, name, 0, pieces()))
        world.tell(f"{agent} has put {name} into {session_id}")

    async def _read(self, deed: Deed, agent: str, session_id: str) -> None:
        from .clients import caller_of

        world, caller, owners = self._world, caller_of(agent, 0), self._world.rules.owners_of(session_id)
        page = await world.call("list files", lambda broker: broker.files.list(caller, session_id))
        names = [file.name for file in page.files]
        world.tell(f"{agent} finds {names} in {session_id}")
        if strangers := {name.partition("-")[0] for name in names} - owners:
            world.violate(f"{agent} finds files of {strangers} in {session_id}, which was {owners}' when it asked")
        whole = [file.name for file in page.files if file.state == "completed"]
        if not whole:
            return
        wanted = deed.choice(whole)

        async def read(broker: Broker) -> bytes:
            opened = await broker.files.open(caller, session_id, wanted)
            try:
                return b"".join([piece async for piece in opened.pieces])
            finally:
                opened.close()

        content = await world.call("read file", read)
        if content.replace(wanted.encode(), b""):
            world.violate(f"{agent} reads {content!r} as {wanted}")
