"""`events`: what has happened lately, and, when asked to stay, what happens from here on.

The stream itself tells where it stands: resuming from a place that never existed is answered with a `reset` that
carries the newest id, and the last few before it are then asked for by number. So nothing is missed in between.
"""

from __future__ import annotations

from ..client.events import ServerEvent
from ..client.sync import Tabherd
from .output import Voice, one_line

# An id of no epoch.
NOWHERE = "0-0"
# How far back the past is looked through.
PAST_MAX = 50
# The same where most of it may be left out; it must be within the server's ring even when that is a small one.
FILTERED_PAST_MAX = 1_000
# What is kept is sent at once: after this much silence there is no more of it.
SILENCE_S = 1.0
# How long a server that is being restarted is waited for by those who stay.
PATIENCE_S = 60.0


def show(voice: Voice, *, follow: bool, types: str | None, agent: str | None, tab: str | None) -> None:
    """Print one line per event until the newest, or until Ctrl-C."""
    with Tabherd(patience_s=0) as herd:
        newest = next(herd.events(after=NOWHERE)).id
    is_filtered = bool(types or agent or tab)
    after = shortly_before(newest, FILTERED_PAST_MAX if is_filtered else PAST_MAX)
    if not follow and after == newest:
        return
    with Tabherd(patience_s=PATIENCE_S if follow else 0) as herd:
        for event in herd.events(
            after=after, silence_s=None if follow else SILENCE_S, types=types, agent=agent, tab=tab
        ):
            if not follow and _place(event.id) > _place(newest):
                return
            _print(voice, event)
            if not follow and event.id == newest:
                return


def shortly_before(newest: str, count: int) -> str:
    """The place from which the last `count` events are read; at the most as many as there were."""
    epoch, seq = _place(newest)
    return f"{epoch}-{max(0, seq - count)}"


def _place(event_id: str) -> tuple[int, int]:
    epoch, _, seq = event_id.partition("-")
    return int(epoch), int(seq)


def _print(voice: Voice, event: ServerEvent) -> None:
    if voice.as_json:
        voice.dump(event.data)
        return
    fields = (f"{name}={value}" for name, value in event.data.items() if name not in ("id", "type", "at"))
    voice.say(one_line(f"{event.data.get('at', '')}  {event.type:<16}  {' '.join(fields)}"))
