"""Changes the settings of a running server: when its file changes, on SIGHUP, and on `PATCH /config`.

What it keeps: a file that cannot be read or is not valid changes nothing, is told as `config_refused`, and is tried
again when it changes again; a file is taken only when it looked the same twice in a row, so that one that is being
written is left alone; a change through the interface is in the file before it is in force; one change at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from .. import logs, wire
from ..broker.events import EventBus
from ..broker.settings import Changes, Settings
from ..config import Config
from ..config_file import Stamp, rewrite, stamp_of
from ..config_layers import KEPT, Layers, Source, named_values, without_zeros
from ..errors import InvalidRequest, StateConflict, TabherdError
from ..toml_edit import CannotEdit, edited

log = logs.get_logger("config")

# How often the file is looked at. It is taken at the second look that finds it changed, and alike.
LOOK_EVERY_S: Final = 1.0
# Stands for what is not shown.
MASK: Final = "********"
# The names of the settings that one change was about, in the audit trail.
TOLD_MAX_CHARS: Final = 1_000
_PASSWORD: Final = re.compile(r"(?<=://)([^/@]*):([^/@]*)@")

Cause = Literal["file", "signal", "patch"]


class Reload:
    """The way from the configuration file to the settings in force."""

    def __init__(self, settings: Settings, layers: Layers, events: EventBus) -> None:
        self.settings = settings
        self._layers = layers
        self._events = events
        # One change at a time.
        self._turn = asyncio.Lock()
        # What the file said when it was last taken: what is in force at the start was read from it a moment ago.
        self._file_names = self._names_at_start()
        # As it was when it was last looked at to be taken, whether it was or not.
        self._seen: Stamp = None
        # Why the file as it is now is not in force.
        self._refused: str | None = None

    # --- What operators ask ---------------------------------------------------------------------------------

    def view(self) -> wire.ConfigView:
        """What is in force, and where it comes from."""
        config = self.settings.current
        tree: dict[str, Any] = msgspec.to_builtins(config)
        defaults = named_values(msgspec.to_builtins(Config()))
        sources = {name: self._source(name, value, defaults) for name, value in named_values(tree).items()}
        tree["store"] = _PASSWORD.sub(rf"\1:{MASK}@", config.store)
        tree["cluster"]["direct_url"] = _PASSWORD.sub(rf"\1:{MASK}@", config.cluster.direct_url)
        tree["locks"]["url"] = _PASSWORD.sub(rf"\1:{MASK}@", config.locks.url)
        tree["webhooks"]["secret"] = MASK if config.webhooks.secret else ""
        return wire.ConfigView(
            settings=tree,
            sources={name: str(source) for name, source in sources.items()},
            file=None if self._layers.path is None else str(self._layers.path),
            needs_restart=list(self.settings.needs_restart),
            refused=self._refused,
        )

    async def patch(self, request: wire.ConfigPatch) -> Changes:
        """Merge the change into the file, and put it in force. Whatever is wrong with it changes neither."""
        patch = _asked(request)
        path = self._layers.path
        if path is None:
            raise StateConflict("This server was started without a configuration file.")
        for name, value in named_values(patch).items():
            self._refuse_unchangeable(name, value)
        async with self._turn:
            current = self.settings.current

            def change(content: bytes | None) -> bytes:
                # Refuses what cannot be read, before and after.
                self._layers.tree_of(content)
                changed = _edited((content or b"").decode(), patch).encode()
                self._layers.config_of(self._layers.tree_of(changed), current)
                return changed

            return self._take(await asyncio.to_thread(rewrite, path, change), "patch")

    # --- What the file tells --------------------------------------------------------------------------------

    async def reload(self, cause: Cause) -> Changes | None:
        """Put in force what the file says now; None when it is refused, and all stays as it is."""
        path = self._layers.path
        if path is None:
            return Changes()
        async with self._turn:
            # Before it is read: whatever changes it from now on is found by the next look.
            self._seen = await asyncio.to_thread(stamp_of, path)
            try:
                return self._take(await asyncio.to_thread(self._layers.content), cause)
            except TabherdError as error:
                self._refused = error.message
                log.warning("configuration refused", reason=error.message, cause=cause)
                self._events.publish("config_refused", reason=error.message, cause=cause)
                return None

    async def watch(self, pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(LOOK_EVERY_S)) -> None:
        """Look at the file again and again, until cancelled."""
        path = self._layers.path
        if path is None:
            return
        last = self._seen
        while True:
            await pause()
            stamp = await asyncio.to_thread(stamp_of, path)
            is_settled, last = stamp == last, stamp
            if is_settled and stamp != self._seen:
                await self.reload("file")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From here on the file is watched, and SIGHUP has it read at once."""
        # What it said at the start is in force already; it may say something else by now.
        await self.reload("file")
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        tasks = (
            asyncio.create_task(self.watch(), name="config-watch"),
            asyncio.create_task(self._reload_when(told), name="config-signal"),
        )
        loop.add_signal_handler(signal.SIGHUP, told.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _reload_when(self, told: asyncio.Event) -> None:
        while True:
            await told.wait()
            told.clear()
            await self.reload("signal")

    def _take(self, content: bytes | None, cause: Cause) -> Changes:
        """Put in force what such a file says."""
        tree = self._layers.tree_of(content)
        config = self._layers.config_of(tree, self.settings.current)
        waiting = self.settings.needs_restart
        changes = self.settings.apply(config)
        self._refused = None
        self._file_names = frozenset(named_values(without_zeros(tree)))
        if changes.changed or changes.needs_restart != waiting:
            # Names only: values may be secrets.
            log.info("configuration changed", changed=changes.changed, needsRestart=changes.needs_restart, cause=cause)
            self._events.publish(
                "config_reloaded",
                changed=list(changes.changed),
                needsRestart=list(changes.needs_restart),
                cause=cause,
            )
        return changes

    def _names_at_start(self) -> frozenset[str]:
        try:
            return frozenset(named_values(without_zeros(self._layers.tree_of(self._layers.content()))))
        except TabherdError:
            # It has changed since, and is refused, with its reason, as soon as it is watched.
            return frozenset()

    def _source(self, name: str, value: Any, defaults: Mapping[str, Any]) -> Source:
        override = self._layers.override_of(name)
        if override is not None:
            return override.source
        if name in self._file_names:
            return "file"
        is_kept = name.partition(".")[0] in KEPT and value != defaults[name]
        return "kept" if is_kept else "default"

    def _refuse_unchangeable(self, name: str, value: Any) -> None:
        override = self._layers.override_of(name)
        if override is not None:
            by = f"the environment variable {override.origin}" if override.source == "environment" else "a flag"
            raise StateConflict(
                f"{override.name} was set by {by} when the server was started, which wins over the file.",
                action="Start the server without it, and then change the setting here.",
                field=override.name,
                source=override.source,
                origin=override.origin,
            )
        if isinstance(value, str) and MASK in value:
            raise InvalidRequest(f"{name} is masked; send the value itself, or leave it out.", field=name)


def told_names(request: wire.ConfigPatch) -> str:
    """Which settings it is about. Names only: values may be secrets."""
    names = ", ".join(sorted(named_values(_asked(request))))
    return names if len(names) <= TOLD_MAX_CHARS else f"{names[: TOLD_MAX_CHARS - 1]}…"


def _asked(request: wire.ConfigPatch) -> dict[str, Any]:
    given = {key: value for key, value in msgspec.structs.asdict(request).items() if value is not msgspec.UNSET}
    # A zero that means "as it is" is nothing to write down, and neither is a section of which nothing is said.
    return {key: value for key, value in without_zeros(given).items() if value != {}}


def _edited(text: str, patch: Mapping[str, Any]) -> str:
    try:
        return edited(text, patch)
    except CannotEdit as error:
        raise StateConflict(
            f"The configuration file cannot be changed in this way: {error}",
            action="Change it by hand; the server follows.",
        ) from None
