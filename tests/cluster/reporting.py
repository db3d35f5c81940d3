"""Pages that tell a site what reached them, so that it is known afterwards which node still let something through."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
from tests.server.conftest import act

from .rig import PAUSE_AFTER_S, code_of, tab_of

# What a node says that does not trust itself.
PAUSED = (503, "store_unavailable")
# Tells the site in which page it runs, the one of before or the one that another node has made.
REPORT = "fetch('/effect?who=' + (window.mark ?? 'new') + '-%s&at=' + Date.now()).then(() => 1)"


def is_paused(client: httpx.Client, session: dict[str, Any], who: str) -> bool:
    """Whether it refuses a command; one that it takes is told to the site."""
    answer = act(client, tab_of(session), "evaluate", expression=REPORT % who)
    assert code_of(answer) in ((200, None), PAUSED), answer.text
    return answer.status_code != 200


async def until_distrust(cut_at_s: float) -> None:
    """Returns when a node that was cut off at that time, by `time.monotonic`, no longer trusts itself.

    What it answers does not tell: it refuses whoever it would have to ask the database about, and that may be sooner.
    """
    await asyncio.sleep(max(0.0, cut_at_s + PAUSE_AFTER_S - time.monotonic()))
