"""A node that waits for its store can be told to stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

# Before it, what was expected counts as missing; far longer than it takes.
LIMIT_S = 60


def test_a_node_whose_database_says_nothing_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(LIMIT_S)
        store = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/x"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TABHERD_")}
        environ |= {"TABHERD_STATE": str(tmp_path / "state"), "TABHERD_STORE": store, "TABHERD_SERVER__PORT": "0"}
        node = subprocess.Popen(
            [sys.executable, "-m", "tabherd", "up"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            # It has got as far as asking the database.
            asked, _ = silent.accept()
            with asked:
                node.send_signal(signal.SIGTERM)
                said, _ = node.communicate(timeout=LIMIT_S)
            assert node.returncode == 0, said.decode()
        finally:
            node.kill()
            node.wait()
