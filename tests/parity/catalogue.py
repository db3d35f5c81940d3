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


_BY_MODULE: Final = dict(_modules())
# Those that have situations, in the order of the catalogue.
MODULES: Final = tuple(_BY_MODULE)
SITUATIONS: Final = tuple(situation for situations in _BY_MODULE.values() for situation in situations)
BY_NAME: Final = {situation.name: situation for situation in SITUATIONS}
assert len(BY_NAME) == len(SITUATIONS), "two situations have the same name"
