"""Peers that are not there are said to be absent, and those that are leave nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from bench import Figure
from bench.rig import peer_browsers
from bench.rig.peer_browsers import PEERS, Absent, Peer, RunningPeer, each_of, marked, running_peer, running_peers

pytestmark = pytest.mark.release

# Answers what it is asked with twice the count, and leaves a process behind that is in a session of its own.
DOUBLING = """
import json, subprocess, sys
left = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(json.dumps(left.pid), flush=True)
for line in sys.stdin:
    print(json.loads(line)["count"] * 2, flush=True)
"""
FAILING = "import sys; sys.exit('no browser for me')"


@pytest.fixture
def a_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program of a peer may be put, which Python runs here."""
    monkeypatch.setattr(peer_browsers, "NODE", Path(sys.executable))
    monkeypatch.setattr(peer_browsers, "PEERS_DIR", tmp_path)
    return tmp_path / "peer.py"


def test_a_peer_that_is_not_installed_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_browsers, "NODE", tmp_path / "node")
    with running_peers(PEERS, places=1) as (there, absent):
        assert there == []
        assert absent == {peer.name: "not installed" for peer in PEERS}


def test_a_peer_that_does_not_start_is_absent_with_its_last_words(a_peer: Path) -> None:
    a_peer.write_text(FAILING, encoding="utf-8")
    with pytest.raises(Absent, match="no browser for me"), running_peer(Peer("Failing", a_peer.name), places=1):
        raise AssertionError("it must not be said to run")


def test_what_a_peer_leaves_behind_is_ended_with_it(a_peer: Path) -> None:
    a_peer.write_text(DOUBLING, encoding="utf-8")
    with running_peer(Peer("Doubling", a_peer.name), places=1) as running:
        assert running.visits_per_s(3, 1, "") == 0.5
        mine = marked(running._mark)
        assert len(mine) == 2
    psutil.wait_procs(mine, timeout=60)
    assert not [each for each in mine if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def test_a_peer_that_ends_in_the_middle_is_absent_from_then_on(a_peer: Path) -> None:
    a_peer.write_text("import sys\nprint(0, flush=True)\ninput()\nsys.exit('I gave up')", encoding="utf-8")
    with running_peers([Peer("Weak", a_peer.name)], places=1) as (there, absent):
        assert each_of(there, absent, RunningPeer.acquire_ms) == {}
        assert there == []
        assert "I gave up" in absent["Weak"]


def test_an_absent_peer_is_named_beside_the_figure() -> None:
    figure = Figure(ours=1.0, unit="ms", others={"direct": 2.0}, absent={"Crawlee": "not installed"})
    assert figure.beside == "direct 2, Crawlee: not installed"


def test_the_packages_of_peers_are_pinned_and_name_no_registry() -> None:
    directory = Path(peer_browsers.__file__).parents[1] / "peers"
    lock = (directory / "package-lock.json").read_bytes()
    assert b'"resolved"' not in lock
    packages = msgspec.json.decode(lock)["packages"]
    wanted = {package for peer in PEERS for package in peer.packages}
    assert all(packages[f"node_modules/{package}"]["integrity"] for package in wanted)
