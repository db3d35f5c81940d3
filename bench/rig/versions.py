"""The versions of what ours is compared with; a comparison without them says nothing a month later."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as python_version
from typing import Final

from . import peer_browsers

# What the name of one of the others contains, and the Python package that it is.
PYTHON: Final = {
    "Playwright": "playwright",
    "PgQueuer": "pgqueuer",
    "Procrastinate": "procrastinate",
    "sqlalchemy-dlock": "sqlalchemy-dlock",
    "httpx": "httpx",
}


def versions_of(others: Iterable[str]) -> dict[str, str]:
    """Those that can be told, by package, for the others that are named."""
    names = set(others)
    found: dict[str, str] = {}
    for peer in peer_browsers.PEERS:
        if peer.name in names:
            found |= {package: peer_browsers.version(package) for package in peer.packages}
    for word, package in PYTHON.items():
        if any(word in name and "for Node" not in name for name in names):
            try:
                found[f"{word} for Python" if word == "Playwright" else word] = python_version(package)
            except PackageNotFoundError:
                continue
    return {package: version for package, version in sorted(found.items(), key=lambda each: each[0].lower()) if version}
