"""What `docs/how-to/connect-over-cdp.md` tells people to paste, made to point at a server of a test.

An example is taken from the page as it stands. Only the address and the token, which the page cannot know, are put in
their place; an example that is missing, or that names neither, fails.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import playwright
from tests.cli.running import environment
from tests.server.conftest import Server

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "connect-over-cdp.md"
# Where npm has put the clients.
DIRECTORY = Path(__file__).parent
PUPPETEER = DIRECTORY.parent / "cdp" / "puppeteer"
# Playwright brings a Node of its own, which is newer than those of many distributions.
NODE = Path(playwright.__file__).parent / "driver" / "node"
# As the page writes them.
ADDRESS, TOKEN = "127.0.0.1:7722", "TOKEN"


def example(heading: str, language: str) -> str:
    """The one example in that language under that heading."""
    section = re.search(
        rf"^##+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert section is not None, f"the page has no heading {heading!r}"
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{len(found)} examples in {language} under {heading!r}"
    return found[0]


def mcp_command(heading: str, server: Server, token: str) -> list[str]:
    """The words that an MCP client starts the server of that section with."""
    configured = json.loads(example(heading, "json"))
    (entry,) = configured["mcpServers"].values()
    words: list[str] = [entry["command"], *entry["args"]]
    address = words.pop()
    assert ADDRESS in address
    assert TOKEN in address
    return [*words, address.replace(ADDRESS, host(server)).replace(TOKEN, token)]


def host(server: Server) -> str:
    """Where it listens."""
    address: str = server.record["url"]
    return address.removeprefix("http://")


def surroundings(server: Server, token: str) -> dict[str, str]:
    """The environment of whoever follows the page: with the two addresses it speaks of, and no way to the registry."""
    return environment(server.state) | {
        "TABHERD_CDP": f"http://{host(server)}?token={token}",
        "TABHERD_WS": f"ws://{host(server)}/?token={token}",
        "PATH": os.pathsep.join((str(NODE.parent), str(DIRECTORY / "node_modules" / ".bin"), os.environ["PATH"])),
        # What is not installed is missing, and not fetched.
        "npm_config_offline": "true",
        "npm_config_update_notifier": "false",
        # Each starts several times, and what takes longest in it is compiling the same scripts again.
        "NODE_COMPILE_CACHE": str(server.state.parent / "compiled"),
        # They would tell their makers, and look for newer ones.
        "CHROME_DEVTOOLS_MCP_NO_USAGE_STATISTICS": "1",
        "CHROME_DEVTOOLS_MCP_NO_UPDATE_CHECKS": "1",
    }
