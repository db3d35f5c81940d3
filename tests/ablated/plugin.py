"""A pytest plugin, `-p tests.ablated.plugin`: one safeguard is off in this process and in the servers it starts."""

from __future__ import annotations

import os

from .safeguards import NAME_VARIABLE, SAFEGUARDS


def switch_off() -> None:
    """Switch the safeguard off that the environment names, if any."""
    if name := os.environ.get(NAME_VARIABLE):
        SAFEGUARDS[name].switch_off()


switch_off()
