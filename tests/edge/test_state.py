"""The state directory: one owner, a node that keeps its name, and an address only while there is one."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tabherd.edge.state import LOCK_FILE, NODE_FILE, SERVER_FILE, ServerInfo, owned
from tabherd.errors import InvalidRequest, StateDirInUse

INFO = ServerInfo(url="http://127.0.0.1:7722", pid=4711, node_id="nod_x")
NOBODY = 65_534
HOLD = """
import sys
from pathlib import Path
from tabherd.edge.state import owned
with owned(Path(sys.argv[1])):
    print("owned", flush=True)
    sys.stdin.read()
"""


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    with owned(tmp_path / "deep" / "state") as directory:
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(InvalidRequest, match="Others may write") as caught, owned(tmp_path):
        pass
    assert caught.value.action == f"Run: chmod go-w {tmp_path}"
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o755)
    with owned(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_directory_of_another_user_is_refused_and_so_is_what_one_has_put_there(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, -1)
    with pytest.raises(InvalidRequest, match=f"uid {NOBODY}") as caught, owned(tmp_path):
        pass
    assert "chown" in caught.value.action
    os.chown(tmp_path, 0, -1)
    (tmp_path / "tabherd.db").touch()
    os.chown(tmp_path / "tabherd.db", NOBODY, -1)
    with pytest.raises(InvalidRequest, match=r"tabherd\.db belongs to another user"), owned(tmp_path):
        pass
    (tmp_path / "tabherd.db").unlink()
    with owned(tmp_path):
        pass


def test_a_second_owner_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with owned(tmp_path) as directory:
        directory.announce(INFO)
        with pytest.raises(StateDirInUse) as caught, owned(tmp_path):
            pass
        assert caught.value.details == {"pid": os.getpid(), "url": INFO.url, "path": str(tmp_path)}
        assert (tmp_path / SERVER_FILE).exists(), "whoever is refused must not withdraw the owner's address"


def test_a_second_owner_is_refused_while_the_first_is_still_starting(tmp_path: Path) -> None:
    with owned(tmp_path):
        with pytest.raises(StateDirInUse) as caught, owned(tmp_path):
            pass
        assert caught.value.details["pid"] == os.getpid()
        assert caught.value.details["url"] is None


def test_ownership_dies_with_the_process_that_had_it(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "owned\n"
        with pytest.raises(StateDirInUse) as caught, owned(tmp_path):
            pass
        assert caught.value.details["pid"] == holder.pid
    finally:
        holder.kill()
        holder.communicate()
    with owned(tmp_path):
        pass


def test_the_address_is_there_only_while_the_server_is(tmp_path: Path) -> None:
    with owned(tmp_path) as directory:
        directory.announce(INFO)
        assert json.loads((tmp_path / SERVER_FILE).read_bytes()) == {"url": INFO.url, "pid": 4711, "nodeId": "nod_x"}
    assert {path.name for path in tmp_path.iterdir()} == {LOCK_FILE}


def test_the_address_that_a_killed_server_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / SERVER_FILE).write_text('{"url": "http://127.0.0.1:1", "pid": 1, "nodeId": "n"}')
    with owned(tmp_path):
        assert not (tmp_path / SERVER_FILE).exists()


def test_a_node_keeps_its_id_and_its_epoch_grows(tmp_path: Path) -> None:
    with owned(tmp_path) as directory:
        first = directory.next_identity()
    with owned(tmp_path) as directory:
        second = directory.next_identity()
    assert first.node_id == second.node_id
    assert first.node_id.startswith("nod_")
    assert (first.epoch, second.epoch) == (1, 2)


def test_an_epoch_the_store_remembers_is_passed(tmp_path: Path) -> None:
    with owned(tmp_path) as directory:
        assert directory.next_identity(epoch_floor=40).epoch == 41


def test_an_identity_that_cannot_be_read_is_refused_not_replaced(tmp_path: Path) -> None:
    (tmp_path / NODE_FILE).write_text("half a fi")
    with owned(tmp_path) as directory, pytest.raises(InvalidRequest, match="node"):
        directory.next_identity()
    assert (tmp_path / NODE_FILE).read_text() == "half a fi"


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="file"), owned(tmp_path / "file"):
        pass


def test_everything_in_it_is_private(tmp_path: Path) -> None:
    with owned(tmp_path) as directory:
        directory.next_identity()
        directory.announce(INFO)
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
