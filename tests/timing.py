"""The timing of a run: seconds per suite and the ten slowest tests, printed at its end and written to build/."""

from __future__ import annotations

import json
import os
import re
import resource
from collections import defaultdict
from pathlib import Path

import pytest

RECORD = Path("build/test-times.json")
# The table of budgets: a suite and its seconds.
BUDGETS = Path("CONTRIBUTING.md")
_BUDGET = re.compile(r"^\| `?(?P<suites>[^|`]+)`? \| (?P<seconds>\d+) \|", re.MULTILINE)
SLOWEST = 10


def _cpu_s() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def budgets_s() -> dict[str, int]:
    """The seconds that each suite may take on two quiet cores, as CONTRIBUTING.md says."""
    return {row["suites"]: int(row["seconds"]) for row in _BUDGET.finditer(BUDGETS.read_text())}


class Timing:
    """A `Timing` collects the seconds of every test, in the process that tells the verdict."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.wall[report.nodeid] += report.duration
        self.cpu[report.nodeid] += dict(report.user_properties).get(f"cpu_{report.when}", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        suites: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        for name, wall in self.wall.items():
            parts = name.split("::")[0].split("/")
            suite = suites[parts[1] if len(parts) > 2 else "top level"]
            suite[0] += 1
            suite[1] += wall
            suite[2] += self.cpu[name]
        write, budgets = terminalreporter.write_line, budgets_s()
        terminalreporter.section("seconds per suite: wall, and processor without the servers that are shared")
        for suite, (count, wall, cpu) in sorted(suites.items(), key=lambda item: -item[1][1]):
            over = f"   over its budget of {budgets[suite]} s" if wall > budgets.get(suite, wall) else ""
            write(f"{suite:<14}{count:>7} tests {wall:>8.1f} s {cpu:>8.1f} s{over}")
        terminalreporter.section(f"the {SLOWEST} slowest tests")
        for name, wall in sorted(self.wall.items(), key=lambda item: -item[1])[:SLOWEST]:
            write(f"{wall:>7.1f} s  {name}")
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps({name: [wall, self.cpu[name]] for name, wall in self.wall.items()}, indent=0))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Notes the processor time since the report before this one."""
    now = _cpu_s()
    item.user_properties.append((f"cpu_{call.when}", now - getattr(item.config, "cpu_before", now)))
    item.config.cpu_before = now
    yield


def pytest_configure(config: pytest.Config) -> None:
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        config.pluginmanager.register(Timing(), "timing-of-the-run")
