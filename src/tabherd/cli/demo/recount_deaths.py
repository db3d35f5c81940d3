"""The judgement of what a demo killed on purpose: an agent, a browser, the server itself. Pure, like `recount`."""

from __future__ import annotations

from typing import Final

from .record import BOARD, Answer, BrowserDeath, Granted, Hit, Record
from .verdict import Verdict, told, verdict

# A request that a page had sent when it was closed may take this long to be noted.
ON_ITS_WAY_MS: Final = 1_000
# State is copied soon after it changed, but not at once: a login this old must not be lost.
KEPT_AFTER_MS: Final = 2_000


def dead_agent(record: Record) -> Verdict | None:
    """The session of an agent that was killed is taken back, and its page falls silent."""
    death = record.agent_death
    if death is None:
        return None
    ended = [each for each in record.happenings if (each.type, each.session) == ("session.closed", death.session)]
    lived = [hit.at_ms for hit in record.hits if hit.visit == death.visit]
    if not ended or not lived:
        return verdict("agent killed: session reclaimed", f"{death.session} was not seen to end", False)
    (closed, *_) = ended
    reclaimed_ms = closed.at_ms - death.killed_ms
    silent_ms = max(0.0, max(lived) - death.killed_ms)
    return verdict(
        "agent killed: session reclaimed",
        f"after {reclaimed_ms:.0f} ms ({closed.reason}); its page gave its last sign of life after {silent_ms:.0f} ms",
        closed.reason == "owner_dead" and silent_ms <= reclaimed_ms + ON_ITS_WAY_MS,
        reclaimed_ms=round(reclaimed_ms),
        silent_ms=round(silent_ms),
    )


def dead_browser(record: Record) -> Verdict | None:
    """The sessions of a browser that was killed go on in another one, with their logins."""
    death = record.browser_death
    if death is None:
        return None
    until_ms = record.broker_death.killed_ms if record.broker_death is not None else float("inf")
    seen = [each for each in record.happenings if death.killed_ms <= each.at_ms <= until_ms]
    hit = {each.session for each in seen if each.type == "session.recovering"}
    back = {each.session: each.at_ms for each in seen if each.type == "session_recovered"}
    given_back = {each.session for each in seen if each.type == "session.closed" and each.reason == "released"}
    lost = hit - back.keys() - given_back
    sessions = {BOARD: record.board_session} | {each.visit: each.session for each in told(record, Granted)}
    visits = {visit: session for visit, session in sessions.items() if session in hit}
    asked = [
        each for each in told(record, Answer) if each.heard_ms > back.get(visits.get(each.visit, ""), float("inf"))
    ]
    again = [each.heard_ms for each in asked if each.outcome == "completed"]
    old, kept = _kept_logins(record.hits, visits, death)
    first_ms = min(again, default=death.killed_ms) - death.killed_ms
    return verdict(
        "browser killed: sessions recovered",
        (
            f"{len(hit)} sessions hit, {len(lost)} lost; "
            + (f"first command again after {first_ms:.0f} ms; " if again else "nobody wanted anything of them again; ")
            + (f"logins still there {kept} of {old}" if old else "no login was old enough to be judged")
        )
        if hit
        else "no session was in it when it died, so there is nothing to judge",
        not lost and (bool(again) or not asked) and kept == old,
        hit=len(hit),
        lost=len(lost),
        first_command_ms=round(first_ms),
        logins=old,
        kept=kept,
    )


def dead_broker(record: Record) -> Verdict | None:
    """The sessions of a server that was killed are there again: same ids, fences and tabs."""
    death = record.broker_death
    if death is None:
        return None
    now = {each.session: each for each in death.after}
    same = given_back = 0
    for before in death.before:
        after = now.get(before.session)
        if after is None:
            continue
        if (after.state, after.fence, after.tabs) == (before.state, before.fence, before.tabs):
            same += 1
        elif after.state == "closing" or after.end_reason == "released":
            # Its agent may be giving it back at this very moment.
            given_back += 1
    lost = len(death.before) - same - given_back
    heard = [each.heard_ms for each in told(record, Answer) if each.outcome == "completed"]
    first_ms = min((at for at in heard if at > death.started_ms), default=death.killed_ms) - death.killed_ms
    back_ms = death.ready_ms - death.killed_ms
    return verdict(
        "server killed: sessions back",
        f"after {back_ms:.0f} ms; {same} of {len(death.before)} with the same ids, fences and tabs, "
        f"{given_back} given back meanwhile, {lost} lost; first command again after {first_ms:.0f} ms",
        bool(death.before) and same > 0 and lost == 0 and first_ms > 0,
        back_ms=round(back_ms),
        before=len(death.before),
        same=same,
        given_back=given_back,
        lost=lost,
        first_command_ms=round(first_ms),
    )


def _kept_logins(hits: list[Hit], visits: dict[str, str], death: BrowserDeath) -> tuple[int, int]:
    """Of the visits that had been logged in for a while and were seen since: how many they are, how many still were."""
    old: set[str] = set()
    kept: dict[str, bool] = {}
    for hit in hits:
        if hit.visit not in visits:
            continue
        if hit.at_ms < death.killed_ms - KEPT_AFTER_MS and hit.cookie_visit == hit.visit:
            old.add(hit.visit)
        elif hit.at_ms > death.killed_ms and hit.visit in old:
            # The first time that it is seen again decides: later it may have logged in anew.
            kept.setdefault(hit.visit, hit.cookie_visit == hit.visit)
    return len(kept), sum(kept.values())
