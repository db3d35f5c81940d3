"""Whether the optional packages are there that MCP needs, said in one typed error when they are not."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from ..errors import ResourceNotFound

INSTALL: Final = "pip install 'tabherd[mcp]'"


def require_sdk() -> None:
    """Raise unless MCP can be spoken here. Costs next to nothing: the packages themselves are slow to import."""
    if find_spec("mcp") is None:
        raise ResourceNotFound(
            "MCP is not installed here: the package 'mcp' is missing.",
            action=f"Run {INSTALL} where tabherd runs, and start it again.",
            install=INSTALL,
        )
