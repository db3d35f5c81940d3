"""When a refused or unanswered request is sent again, and when that is given up. Pure: time and chance are arguments.

Waited out are refusals because of load or of a server that is not there just now. A tab that somebody else has is not:
who wants to wait for a tab says so in the request and keeps a fair place in its queue. Neither is a time that ran out:
it was the caller's own.
"""

from __future__ import annotations

from typing import Final

from ..errors import Backpressure, BrowserCrashed, TabherdError, Unavailable

# How long to wait when the refusal names no time: doubled each time, up to the longest.
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0
# A crowd that was refused together must not come back together.
JITTER: Final = 0.25
# A hint further away than this is cut: it is an estimate, and whoever asks again joins the queue.
HINT_MAX_S: Final = 30.0


def wait_before_retry(
    error: TabherdError, attempt: int, elapsed_s: float, patience_s: float, chance: float
) -> float | None:
    """Seconds until the request is sent again, or None: the error stands.

    `attempt` counts from 0, `elapsed_s` is since the first, `chance` is from [0, 1).
    """
    if not error.retryable or not isinstance(error, (Backpressure, Unavailable, BrowserCrashed)):
        return None
    if error.retry_after_ms is not None:
        wait_s = min(error.retry_after_ms / 1000, HINT_MAX_S)
    else:
        wait_s = min(FIRST_WAIT_S * 2 ** min(attempt, 10), LONGEST_WAIT_S)
    # Later than the time that was named, never earlier.
    wait_s += wait_s * JITTER * chance
    return wait_s if elapsed_s + wait_s <= patience_s else None
