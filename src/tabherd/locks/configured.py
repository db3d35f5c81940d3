"""Which backend a program means that asks for a lock: what it said, else what tabherd is configured with.

A program needs neither a server nor a file of settings. The settings are read as the server reads them, but only those
that concern locks: a mistake elsewhere in them is not a lock's business. They are read once for each address that is
given, and where none is, again if the environment names others.

Threads of a process share a backend for each address; each event loop has one of its own, since its connections are
part of it. All of them end with the program.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from ..config import Locks, state_dir
from ..config_layers import layers_of, named_values
from ..errors import InvalidRequest
from .base import AsyncBackend, Backend
from .open import is_postgres, open_async_backend, open_backend
from .waiting import at_once

# What of the environment decides where locks are.
DECIDES: Final = (
    "TABHERD_STATE",
    "TABHERD_CONFIG",
    "TABHERD_STORE",
    "TABHERD_LOCKS__URL",
    "TABHERD_LOCKS__MAX_CONNECTIONS",
    "TABHERD_LOCKS__KEEPALIVE_S",
    "XDG_STATE_HOME",
    "HOME",
)
# Where in the state directory locks are that are files.
LOCKS_DIR: Final = "locks"
SECTION: Final = "locks."
# Combinations of address and environment that are remembered.
REMEMBERED_MAX: Final = 256


class Place(msgspec.Struct, frozen=True):
    """Where locks are, and how they are to be reached."""

    # Of a database, or file:///directory.
    url: str
    max_connections: int
    keepalive_s: int


def place_of(url: str | None) -> Place:
    """The place that a caller means who gives this address, or none."""
    if url:
        return _place(url)
    return _place("", *map(os.environ.get, DECIDES))


@lru_cache(REMEMBERED_MAX)
def _place(url: str, *_: str | None) -> Place:
    layers = layers_of()
    said = named_values(layers.tree_of(layers.content()))
    said |= {override.name: override.value for override in layers.overrides}
    wanted = {name.removeprefix(SECTION): value for name, value in said.items() if name.startswith(SECTION)}
    try:
        locks = msgspec.convert(wanted, Locks, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Configuration: locks: {error}.", field="locks") from None
    return Place(
        url or default_url(str(said.get("store", "")), locks, state_dir()), locks.max_connections, locks.keepalive_s
    )


def default_url(store: str, locks: Locks, state: Path) -> str:
    """Where locks are if nobody says: beside everything else that tabherd remembers."""
    return locks.url or (store if is_postgres(store) else (state / LOCKS_DIR).absolute().as_uri())


_guard = threading.Lock()
_backends: dict[Place, Backend] = {}
_async_backends: dict[tuple[asyncio.AbstractEventLoop, Place], AsyncBackend] = {}


def backend_at(place: Place) -> Backend:
    """The backend of this process for threads."""
    if (backend := _backends.get(place)) is None:
        with _guard:
            if (backend := _backends.get(place)) is None:
                backend = _backends[place] = open_backend(
                    place.url, max_connections=place.max_connections, keepalive_s=place.keepalive_s
                )
    return backend


def async_backend_at(place: Place) -> AsyncBackend:
    """The backend of the event loop that runs."""
    loop = asyncio.get_running_loop()
    if (backend := _async_backends.get((loop, place))) is None:
        with _guard:
            _close_those_of_closed_loops()
            backend = _async_backends[loop, place] = open_async_backend(
                place.url, max_connections=place.max_connections, keepalive_s=place.keepalive_s
            )
    return backend


def _close_those_of_closed_loops() -> None:
    for loop, place in tuple(_async_backends):
        if loop.is_closed():
            # All that it awaited is over; what is left of it does not wait.
            at_once(_async_backends.pop((loop, place)).close())


@atexit.register
def close_all() -> None:
    """End every connection that is idle; what is asked for later is opened anew."""
    with _guard:
        while _backends:
            _backends.popitem()[1].close()
        while _async_backends:
            at_once(_async_backends.popitem()[1].close())


def _forget_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    _async_backends.clear()


os.register_at_fork(after_in_child=_forget_in_child)
