"""All situations: every module of this package that has `SITUATIONS` adds its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from .situation import Situation

# What is in this package besides situations.
_FRAME: Final = frozenset({"__main__", "campaign", "catalogue", "ours", "page", "situation", "theirs"})


def _modules() -> Iterator[tuple[str, Sequence[Situation]]]:
    for module in sorted(each.name for each in pkgutil.iter_modules([str(Path(__file__).parent)])):
        if module in _FRAME or module.startswith("test_"):
            continue
        # By this package's own name: pytest calls it otherwise than `python -m` does.
        situations = getattr(importlib.import_module(f".{module}", __package__), "SITUATIONS", ())
        if situations:
            yield module, situations


BY_MODULE: Final = dict(_modules())
# Those that have situations, in the order of the catalogue.
MODULES: Final = tuple(BY_MODULE)
SITUATIONS: Final = tuple(situation for situations in BY_MODULE.values() for situation in situations)
BY_NAME: Final = {situation.name: situation for situation in SITUATIONS}
assert len(BY_NAME) == len(SITUATIONS), "two situations have the same name"


def _kind(situation: Situation) -> tuple[type, str, bool]:
    return type(situation.ours[-1]), situation.our_end, bool(situation.difference)


# The first of each kind: another verb, another end, or a difference to Playwright that is pinned.
_FIRST: Final = {_kind(situation): situation for situation in reversed(SITUATIONS)}


def sample_of(module: str) -> Sequence[Situation]:
    """The situations of a module that are the first of their kind, and at least one of those in it."""
    situations = BY_MODULE[module]
    return [each for each in situations if _FIRST[_kind(each)] is each] or situations[:1]
