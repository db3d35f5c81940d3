"""A caller that waits for a session while others have them all, in a thread of its own."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

from .caller import Opened, now_ms
from .server import Server

# Longer than anything that is measured may take.
WAIT_MS: Final = 60_000
POLL_S: Final = 0.005


class Waiter:
    """One caller and what it waits for. Use it in `with`; it may wait again after each `taken`."""

    def __init__(self, server: Server) -> None:
        self._caller = server.caller()
        # Looks whether it waits, for it cannot tell itself.
        self._watch = server.caller()
        self._thread: threading.Thread | None = None
        self._session: Opened | None = None
        self._error: BaseException | None = None
        self._had_ms = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._caller.close()
        self._watch.close()

    def wait(self) -> None:
        """Ask for a session; returns when it is in the queue for one."""
        self._session = self._error = None
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()
        while self._thread.is_alive() and not self._watch.call("GET", "/stats")["pools"]["default"]["waiting"]:
            time.sleep(POLL_S)

    def taken(self) -> tuple[Opened, float]:
        """The session, once it has it and a page in it has answered; and when that was, in `now_ms`."""
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session, self._had_ms

    def give_back(self, disposition: str = "close") -> None:
        """Release what it took."""
        assert self._session is not None
        self._caller.release(self._session, disposition)

    def _take(self) -> None:
        try:
            self._session = self._caller.open(waitMs=WAIT_MS)
            self._caller.evaluate(self._session.tab_id)
            self._had_ms = now_ms()
        except Exception as error:  # noqa: BLE001 - it is raised where the session is wanted
            self._error = error
