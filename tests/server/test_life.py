"""What the server leaves behind when it stops, is killed, or loses its browser: nothing."""

from __future__ import annotations

import psutil
import pytest
from tests.cli.running import call

from .conftest import Server, act, is_alive, open_session, value_of
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_a_second_server_is_refused_and_stopping_the_first_leaves_no_process_and_no_profile(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada")
        act(admin, session["tabs"][0]["tabId"], "navigate", url="data:text/html,hello")
    broker = psutil.Process(own_server.record["pid"])
    assert own_server.browsers()
    second = call(own_server.state, "up", "--json")
    assert second.returncode == 1
    assert str(broker.pid) in second.stdout + second.stderr
    assert "state_dir_in_use" in second.stdout + second.stderr
    assert call(own_server.state, "down").returncode == 0
    assert not is_alive(broker)
    assert own_server.browsers() == []
    assert own_server.profiles() == []
    assert not (own_server.state / "server.json").exists()


def test_down_also_ends_the_browsers_of_a_server_that_was_killed(own_server: Server, login_site: LoginSite) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada", url=login_site.url("/login/ada"))
        own_server.wait_kept([session["sessionId"]], "secret-of-ada")
    orphans = own_server.browsers()
    own_server.kill()
    assert any(is_alive(orphan) for orphan in orphans)
    said = call(own_server.state, "down")
    assert (said.returncode, "Ended 1 browser" in said.stdout) == (0, True)
    assert not any(is_alive(orphan) for orphan in orphans)
    assert own_server.profiles() == []
    # The session was its owner's, not the browser's: the next server has it.
    own_server.start()
    with own_server.client() as admin:
        assert value_of(admin, session["tabs"][0]["tabId"], "document.body.innerText") == "Hello, ada"
