"""`events`: what has happened lately, and, when asked to stay, what happens from here on.

The stream itself tells where it stands: resuming from a place that never existed is answered with a `reset` that
carries the newest id, and the last few before it are then asked for by number. So nothing is missed in between.
"""

from __future__ import annotations

from ..client import Tabherd
from ..client.sync import ServerEvent
from .output import Voice

# An id of no epoch.
NOWHERE = "0-0"
# How many past events are shown.
PAST_MAX = 50
# What is kept is sent at once: after this much silence there is no more of it.
SILENCE_S = 1.0


def show(voice: Voice, *, follow: bool) -> None:
    """Print one line per event until the newest, or until the server ends or Ctrl-C."""
    with Tabherd() as herd:
        newest = next(herd.events(after=NOWHERE)).id
        epoch, _, seq = newest.partition("-")
        after = f"{epoch}-{max(0, int(seq) - PAST_MAX)}"
        if not follow and after == newest:
            return
        try:
            for event in herd.events(after=after, silence_s=None if follow else SILENCE_S):
                _print(voice, event)
                if not follow and event.id == newest:
                    return
        except KeyboardInterrupt:
            # The way to leave a stream that has no end.
            return


def _print(voice: Voice, event: ServerEvent) -> None:
    if voice.as_json:
        voice.dump(event.data)
        return
    fields = (f"{name}={value}" for name, value in event.data.items() if name not in ("id", "type", "at"))
    voice.say(f"{event.data.get('at', '')}  {event.type:<16}  {' '.join(fields)}")
