"""Runs the tests as `make test` does: `python -m tests.run [pytest's arguments]`.

The processor time at the end counts every process that the run started. So this process adopts those whose parents were
killed, as tests do with servers and browsers; and it ends those that are left when a run is interrupted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

import psutil

PR_SET_CHILD_SUBREAPER = 36


def end_leftovers() -> None:
    """End what the run has left behind: browsers would keep their debug ports, of which there are few."""
    left = [
        process for process in psutil.Process().children(recursive=True) if process.status() != psutil.STATUS_ZOMBIE
    ]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            print(f"Ending what the tests have left: {process.pid} {' '.join(process.cmdline())[:100]}")
            process.kill()
    psutil.wait_procs(left, timeout=10)


def main(arguments: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Ctrl-C reaches pytest as well, and pytest ends the run.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    began = time.monotonic()
    run = subprocess.Popen([sys.executable, "-m", "pytest", "-p", "tests.timing", *arguments])
    code = None
    while code is None:
        pid, status = os.waitpid(-1, 0)
        if pid == run.pid:
            code = os.waitstatus_to_exitcode(status)
    end_leftovers()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s, cpu_s = time.monotonic() - began, used.ru_utime + used.ru_stime
    print(f"Whole run: {wall_s:.0f} s, {cpu_s / 60:.1f} minutes of processor ({cpu_s / wall_s:.2f} cores busy).")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
