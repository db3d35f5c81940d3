"""Profile directories: one to throw away per launched browser, gone when it is, and those that pools want kept.

A profile's place follows from the browser's id alone, so that what a killed broker left behind can be found again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from . import process

log = structlog.get_logger(__name__)

# What the browser printed; only fatal errors, so pages cannot make it grow.
LOG_NAME: Final = "browser.log"
# Where the full build's crash collector keeps its files, and the variable that tells it so.
CRASHES_NAME: Final = "crashes"
CRASHES_VARIABLE: Final = "BREAKPAD_DUMP_LOCATION"
# Lines and bytes of it worth showing to a person.
LOG_LINES_SHOWN: Final = 8
LOG_BYTES_SHOWN: Final = 4_000
# A dying process may still create files while the tree is being removed.
REMOVE_TRIES: Final = 20
REMOVE_PAUSE_S: Final = 0.05


def place(profiles_dir: Path, browser_id: str) -> Path:
    """Where that browser's profile is or would be."""
    assert browser_id.replace("-", "").replace("_", "").isalnum(), f"not a name for a directory: {browser_id!r}"
    return profiles_dir / browser_id


def kept(named: str) -> Path:
    """The profile that a pool names: never removed."""
    return Path(named).expanduser()


async def remove(profile: Path) -> None:
    """Delete the directory and what Chromium keeps outside of it; one that does not exist is fine."""
    await asyncio.to_thread(_remove, profile)


def last_words(profile: Path) -> str:
    """The end of what the browser printed, on one line; empty if it printed nothing."""
    try:
        with (profile / LOG_NAME).open("rb") as printed:
            printed.seek(0, os.SEEK_END)
            printed.seek(max(0, printed.tell() - LOG_BYTES_SHOWN))
            text = printed.read().decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-LOG_LINES_SHOWN:])


def _remove(profile: Path) -> None:
    _end_collector(profile)
    _remove_singleton(profile)
    error: OSError | None = None
    for _ in range(REMOVE_TRIES):
        try:
            shutil.rmtree(profile)
        except (FileNotFoundError, NotADirectoryError):
            # Either it is all gone, or a file vanished under our hands: look again.
            if not profile.exists():
                return
        except OSError as refused:
            error = refused
            time.sleep(REMOVE_PAUSE_S)
        else:
            return
    log.error("a browser's profile cannot be removed", profile=str(profile), error=str(error))


def _end_collector(profile: Path) -> None:
    """The full build's crash collector leaves the browser's process group; it follows the browser, but not at once."""
    crashes = profile / CRASHES_NAME
    if crashes.is_dir():
        for pid in process.with_argument(f"--database={crashes}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _remove_singleton(profile: Path) -> None:
    """The full build keeps a socket in the temporary directory, linked from the profile, and leaves it when killed."""
    try:
        target = Path(os.readlink(profile / "SingletonSocket")).parent
        # The link lies in a directory the browser could write: follow it only to what Chromium itself would make.
        if target.name.startswith(("org.chromium.", "com.google.")) and target.stat().st_uid == os.geteuid():
            shutil.rmtree(target)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        log.warning("a browser's singleton directory cannot be removed", profile=str(profile), error=str(error))
