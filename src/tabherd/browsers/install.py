"""Installs a browser with the system's package manager, or says exactly what a person has to run.

Only apt is driven by us, and only where we may: as root, or with a sudo that asks no password. Nothing is downloaded
behind the package manager's back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ..errors import NoBrowser
from .find import FoundBrowser, Machine, Ran, Run, find_browser, install_hint, run_command, which

# The light build where the distribution has it, else the full one.
PACKAGES: Final = ("chromium-headless-shell", "chromium")
INSTALL_LIMIT_S: Final = 900
_run_long: Final = partial(run_command, limit_s=INSTALL_LIMIT_S)


def install_browser(
    machine: Machine | None = None,
    run: Run = _run_long,
    say: Callable[[str], None] = print,
    is_root: bool | None = None,
) -> FoundBrowser:
    """Install one and find it; `NoBrowser` with the command to run when that is not ours to do, or fails."""
    machine = machine or Machine()
    if which("apt-get", machine) is None:
        raise NoBrowser("tabherd can install a browser only with apt-get.", action=install_hint(machine))
    prefix = _privilege(machine, run, os.geteuid() == 0 if is_root is None else is_root)
    if prefix is None:
        raise NoBrowser("Installing a browser needs root.", action=install_hint(machine), retryable=False)
    apt = (*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q")
    _run_aloud((*apt, "update"), run, say)
    failed = Ran(0, "")
    for package in PACKAGES:
        failed = _run_aloud((*apt, "install", "-y", "--no-install-recommends", package), run, say)
        if failed.status == 0:
            return find_browser(machine=machine)
    raise NoBrowser(
        f"apt-get could not install a browser: {failed.output[-500:]}", action=install_hint(machine), retryable=False
    )


def _privilege(machine: Machine, run: Run, is_root: bool) -> tuple[str, ...] | None:
    """What to put before a command so that it runs as root; None when we cannot."""
    if is_root:
        return ()
    if which("sudo", machine) is not None and run(("sudo", "-n", "true")).status == 0:
        return ("sudo", "-n")
    return None


def _run_aloud(argv: Sequence[str], run: Run, say: Callable[[str], None]) -> Ran:
    say(f"$ {' '.join(argv)}")
    ran = run(argv)
    if ran.status != 0:
        say(f"failed with status {ran.status}: {ran.output[-500:]}")
    return ran
