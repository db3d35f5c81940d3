"""`install-browser`: find a Chromium that tabherd can drive, else install one."""

from __future__ import annotations

from ..browsers.find import find_browser
from ..browsers.install import install_browser
from ..errors import NoBrowser
from .output import Voice


def ensure(voice: Voice) -> None:
    """Leave a usable browser on this machine, or raise `NoBrowser` with the fix."""
    with voice.progress("Looking for a browser") as tell:
        try:
            found = find_browser()
        except NoBrowser as missing:
            voice.say(f"{missing.message} Installing one; this can take minutes.")

            def say(line: str) -> None:
                voice.say(line)
                tell(line)

            found = install_browser(say=say)
    voice.answer(
        {"path": str(found.path), "kind": found.kind, "version": found.version},
        f"{found.version} ({found.kind}) at {found.path}",
    )
