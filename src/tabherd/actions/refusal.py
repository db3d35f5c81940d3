"""Errors of an element that no waiting cures: an invalid selector, a stale ref, several candidates, a wrong kind."""

from __future__ import annotations

from typing import Any, Final

from ..errors import AmbiguousTarget, ElementNotActionable, InvalidSelector, StaleRef
from . import advice, nearest
from .mistakes import correction

# How much of the page's own words is repeated.
WORDS_MAX: Final = 300


def refusal(label: str, refused: dict[str, Any]) -> InvalidSelector | StaleRef | AmbiguousTarget:
    """What the script in the page refuses, as an error."""
    match refused:
        case {"stale": ref}:
            known = {name: refused[name] for name in ("role", "name") if refused.get(name)}
            known |= {"candidates": near} if (near := nearest.best(refused.get("candidates", ()))) else {}
            message, action = advice.stale(label, known)
            return StaleRef(message, action=action, ref=ref, **known)
        case {"invalid": error, "part": part}:
            text, meant = str(part), correction(str(part))
            return InvalidSelector(
                f"{label} is not a valid selector: '{text[:WORDS_MAX]}' cannot be read.",
                action=None if meant is None else f"Write it like {meant}",
                field="selector",
                error=str(error)[:WORDS_MAX],
                part=text[:WORDS_MAX],
            )
        case {"count": count, "candidates": candidates}:
            return AmbiguousTarget(
                f"{label} fits {count} elements.",
                action="Use the ref of one of the candidates, add >> nth=0 for the first of them and so on, or write a "
                "selector that fits one element only.",
                count=count,
                candidates=candidates,
            )
        case _:
            raise AssertionError(f"the script refused in a way of its own: {refused}")


def unusable(label: str, element: str, reason: str) -> ElementNotActionable:
    """The element is there and ready, and not of the kind that the action needs."""
    return ElementNotActionable(
        f"{label} cannot be used like that: {reason}.",
        action="Choose another element or another action.",
        element=element,
    )
