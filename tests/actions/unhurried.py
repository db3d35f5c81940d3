"""Gives what an action waits for on purpose only so long the time that a busy machine takes to do it.

These limits are there for what may never come: an advice that a frame withholds, a navigation that does not begin. A
test in which it does come shall not fail where it comes late. One that is about a limit sets its own.
"""

from __future__ import annotations

import pytest

from tabherd.actions import arrival, drag, navigations, nearest, snapshot, upload, world

from .driving import LIMIT_S


def take_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(arrival, "ABORTED_LIMIT_S", LIMIT_S)
    patch.setattr(drag, "CARRY_LIMIT_S", LIMIT_S)
    patch.setattr(navigations, "START_LIMIT_S", LIMIT_S)
    patch.setattr(nearest, "LIMIT_S", LIMIT_S)
    patch.setattr(snapshot, "DOCUMENT_MS", LIMIT_S * 1_000)
    patch.setattr(snapshot, "FRAMES_S", LIMIT_S)
    patch.setattr(upload, "CHOOSER_LIMIT_S", LIMIT_S)
    # What a frame never answers it is asked again, so that has to come well before the end.
    patch.setattr(world, "FRAME_ANSWER_LIMIT_S", LIMIT_S / 4)
