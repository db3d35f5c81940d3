"""What figures were made on and with: without it a number means nothing."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import msgspec

from tabherd import __version__

from .direct import HEADLESS_SHELL, found


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """This machine, and the programs that matter."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    chromium: str
    tabherd: str
    # Work that others had for the machine when the run began: the load average of the last minute.
    load: float

    def __str__(self) -> str:
        return (
            f"{self.cores} cores of {self.processor}, {self.memory_gib:.0f} GiB, {self.kernel}; Python {self.python}, "
            f"{self.chromium}, tabherd {self.tabherd}; load average at the start {self.load:.1f}"
        )


def this_machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        chromium=found(HEADLESS_SHELL).version,
        tabherd=__version__,
        load=os.getloadavg()[0],
    )


def _processor() -> str:
    named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return " ".join(named[1].split()) if named else platform.machine()
