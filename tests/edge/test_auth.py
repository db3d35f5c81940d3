"""The guard: foreign pages, missing and weak credentials, forged agents and haste are refused."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import msgspec
import pytest

from tabherd.broker import credentials
from tabherd.broker.credentials import Credentials, hash_of
from tabherd.config import Config, parse
from tabherd.edge.auth import Guard, act_for, as_controller
from tabherd.edge.head import Head
from tabherd.edge.http import App
from tabherd.errors import Forbidden, InvalidRequest, RateLimited, Unauthenticated
from tabherd.store.memory import MemoryStore

from .conftest import client_of
from .fake_broker import FakeBroker

CLIENT = ("127.0.0.1", 50_000)


def guard_of(settings: dict[str, object] | None = None, port: int = 7722) -> Guard:
    return Guard(parse(settings or {}), port, Credentials(MemoryStore()))


def head_of(**headers: str) -> Head:
    return Head([(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()])


# --- Host and Origin --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7722", "localhost:7722", "LOCALHOST:7722", "[::1]:7722", "127.0.0.1", "[::1]"]
)
def test_our_own_names_are_admitted(host: str) -> None:
    guard_of().check_address(head_of(host=host), None)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7722", "localhost", "127.0.0.1:80", "localhost.evil.example:7722", "", ":7722",
     "127.0.0.1:7722.evil.example", "192.168.0.9:7722"],
)  # fmt: skip
def test_a_foreign_host_is_refused(host: str) -> None:
    with pytest.raises(Forbidden):
        guard_of().check_address(head_of(host=host), ("127.0.0.1", 7722))


def test_a_request_without_a_host_is_refused() -> None:
    with pytest.raises(Forbidden):
        guard_of().check_address(head_of(), None)


def test_on_the_standard_port_the_port_may_be_left_out() -> None:
    guard_of(port=80).check_address(head_of(host="localhost"), None)


def test_the_address_it_listens_on_is_admitted() -> None:
    guard = guard_of({"server": {"host": "192.168.0.9"}})
    guard.check_address(head_of(host="192.168.0.9:7722"), None)


def test_listening_everywhere_the_address_that_was_dialled_is_admitted_and_no_other() -> None:
    guard = guard_of({"server": {"host": "0.0.0.0"}})
    guard.check_address(head_of(host="192.168.0.9:7722"), ("192.168.0.9", 7722))
    with pytest.raises(Forbidden):
        guard.check_address(head_of(host="192.168.0.10:7722"), ("192.168.0.9", 7722))


@pytest.mark.parametrize("host", ["herd.example", "herd.example:443", "HERD.example:9000", "only.example:81"])
def test_configured_names_are_admitted(host: str) -> None:
    guard_of({"server": {"allowed_hosts": ["herd.example", "only.example:81"]}}).check_address(head_of(host=host), None)


def test_a_configured_name_with_a_port_admits_only_that_port() -> None:
    with pytest.raises(Forbidden):
        guard_of({"server": {"allowed_hosts": ["only.example:81"]}}).check_address(
            head_of(host="only.example:82"), None
        )


@pytest.mark.parametrize("origin", ["http://localhost:7722", "https://localhost:7722", "HTTP://LocalHost:7722"])
def test_our_own_origin_is_admitted(origin: str) -> None:
    guard_of().check_address(head_of(host="localhost:7722", origin=origin), None)


@pytest.mark.parametrize(
    "origin", ["null", "", "http://evil.example", "http://localhost", "http://127.0.0.1:7722", "ftp://localhost:7722"]
)
def test_a_foreign_origin_is_refused(origin: str) -> None:
    with pytest.raises(Forbidden):
        guard_of().check_address(head_of(host="localhost:7722", origin=origin), None)


@pytest.mark.parametrize("name", [b"host", b"origin", b"authorization", b"x-agent-id"])
def test_a_header_that_decides_and_comes_twice_is_refused(name: bytes) -> None:
    head = Head([(b"host", b"localhost:7722"), (name, b"a"), (name, b"b")])
    with pytest.raises((InvalidRequest, Forbidden)):
        guard_of().check_address(head, None)


async def test_the_address_is_checked_on_every_path(make_app: Callable[..., App]) -> None:
    async with client_of(make_app(), Host="evil.example") as client:
        for path in ("/health", "/", "/nothing", "/sessions"):
            assert (await client.get(path)).status_code == 403


async def test_without_auth_everybody_is_admin_but_the_address_is_still_checked(
    make_app: Callable[..., App], broker: FakeBroker
) -> None:
    app = make_app({"auth": {"enabled": False}})
    async with client_of(app) as client:
        assert (await client.post("/agents", json={"agentId": "bob"})).status_code == 201
    async with client_of(app, Origin="http://evil.example") as client:
        assert (await client.post("/agents", json={"agentId": "bob"})).status_code == 403


# --- Credentials ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer th_wrong", "Basic dTpw", "th_wrong", "Bearer \xe9"]
)
async def test_a_bad_authorization_is_refused_with_a_challenge(anybody: httpx.AsyncClient, header: str) -> None:
    answer = await anybody.get("/sessions", headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthenticated"
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_request_without_a_credential_is_refused(anybody: httpx.AsyncClient) -> None:
    assert (await anybody.get("/sessions")).status_code == 401


async def test_the_scheme_of_a_credential_is_read_in_any_case(make_app: Callable[..., App], alice_token: str) -> None:
    async with client_of(make_app()) as client:
        answer = await client.get("/sessions", headers={"Authorization": f"bearer {alice_token}"})
    assert answer.status_code == 200


async def test_a_token_that_has_expired_is_refused_with_the_reason(
    make_app: Callable[..., App], admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (await admin.post("/agents", json={"agentId": "bob", "expiresInS": 60})).json()
    async with client_of(make_app(), made["token"]) as bob:
        assert (await bob.get("/tokens")).json()["tokens"][0]["expiresAt"] == made["expiresAt"]
        later = credentials.now_ms() + 60_000
        monkeypatch.setattr(credentials, "now_ms", lambda: later)
        answer = await bob.get("/sessions")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.json()["message"] == f"The token expired at {made['expiresAt']}."


async def test_tokens_are_listed_without_their_secrets_and_revoked_by_their_ids(
    make_app: Callable[..., App], admin: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    made = (await admin.post("/agents", json={"agentId": "bob", "scopes": ["browse"]})).json()
    listed = (await admin.get("/tokens", params={"agentId": "bob"})).text
    (view,) = msgspec.json.decode(listed)["tokens"]
    assert (view["tokenId"], view["agentId"], view["scopes"]) == (made["tokenId"], "bob", ["browse"])
    assert (view["expiresAt"], view["revokedAt"]) == (None, None)
    assert made["token"] not in listed
    assert hash_of(made["token"]) not in listed
    assert {each["agentId"] for each in (await alice.get("/tokens")).json()["tokens"]} == {"alice"}
    assert (await alice.get("/tokens", params={"agentId": "bob"})).status_code == 403
    async with client_of(make_app(), made["token"]) as bob:
        assert (await bob.get("/sessions")).status_code == 200
        assert (await alice.delete(f"/tokens/{made['tokenId']}")).status_code == 404
        assert (await admin.delete(f"/tokens/{made['tokenId']}")).status_code == 204
        assert (await bob.get("/sessions")).status_code == 401
    (view,) = (await admin.get("/tokens", params={"agentId": "bob"})).json()["tokens"]
    assert view["revokedAt"] is not None


async def test_making_and_revoking_tokens_is_in_the_audit_trail_and_so_are_refusals(
    admin: httpx.AsyncClient, alice: httpx.AsyncClient, broker: FakeBroker
) -> None:
    made = (await admin.post("/agents", json={"agentId": "bob", "scopes": ["browse"], "expiresInS": 60})).json()
    await alice.post("/agents", json={"agentId": "bob"})
    await alice.delete(f"/tokens/{made['tokenId']}")
    await admin.delete(f"/tokens/{made['tokenId']}")
    assert [(note["agent_id"], note["verb"], note["detail"]) for note in broker.auditor.noted] == [
        ("root", "token_new", f"{made['tokenId']} for bob: browse until {made['expiresAt']}"),
        ("alice", "token_new_refused", "forbidden"),
        ("alice", "token_revoke_refused", f"{made['tokenId']}: not_found"),
        ("root", "token_revoke", f"{made['tokenId']} of bob"),
    ]
    assert made["token"] not in str(broker.auditor.noted)


async def test_a_token_in_the_query_does_not_open_an_ordinary_route(
    anybody: httpx.AsyncClient, alice_token: str
) -> None:
    assert (await anybody.get("/sessions", params={"token": alice_token})).status_code == 401


async def test_a_token_in_the_query_identifies_where_a_client_cannot_set_headers(
    broker: FakeBroker, alice_token: str
) -> None:
    guard = Guard(Config(), 7722, broker.credentials)
    caller = await guard.identify(head_of(), CLIENT, query_token=alice_token)
    assert caller.agent_id == "alice"


async def test_a_bad_header_is_not_saved_by_a_good_query_token(broker: FakeBroker, alice_token: str) -> None:
    guard = Guard(Config(), 7722, broker.credentials)
    with pytest.raises(Unauthenticated):
        await guard.identify(head_of(authorization="Bearer th_wrong"), CLIENT, query_token=alice_token)


async def test_a_missing_scope_is_forbidden_and_named(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/agents", json={"agentId": "bob"})
    assert answer.status_code == 403
    assert answer.json()["details"]["scope"] == "admin"


async def test_a_new_agent_can_use_its_token_at_once(admin: httpx.AsyncClient, make_app: Callable[..., App]) -> None:
    made = (await admin.post("/agents", json={"agentId": "bob", "scopes": ["browse"]})).json()
    assert made["agentId"] == "bob"
    assert made["scopes"] == ["browse"]
    async with client_of(make_app(), made["token"]) as bob:
        assert (await bob.post("/sessions")).json()["agentId"] == "bob"


# --- Agents -----------------------------------------------------------------------------------------------------


async def test_an_agent_cannot_act_for_another(alice: httpx.AsyncClient, broker: FakeBroker) -> None:
    forged = [
        alice.post("/sessions", headers={"X-Agent-Id": "bob"}),
        alice.post("/sessions", json={"agentId": "bob"}),
        alice.get("/sessions", params={"agentId": "bob"}),
        alice.get("/events", params={"agentId": "bob"}),
    ]
    for attempt in forged:
        answer = await attempt
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert broker.sessions.callers == []


async def test_an_agent_may_name_itself(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/sessions", headers={"X-Agent-Id": "alice"}, json={"agentId": "alice"})
    assert answer.status_code == 201


async def test_an_admin_acts_for_the_agent_it_names(admin: httpx.AsyncClient) -> None:
    assert (await admin.post("/sessions", headers={"X-Agent-Id": "bob"})).json()["agentId"] == "bob"
    assert (await admin.post("/sessions", json={"agentId": "carol"})).json()["agentId"] == "carol"


async def test_a_name_no_agent_can_have_is_refused(admin: httpx.AsyncClient) -> None:
    answer = await admin.post("/sessions", headers={"X-Agent-Id": "a b"})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "X-Agent-Id")


async def test_an_admin_that_acts_for_an_agent_stays_admin(broker: FakeBroker, admin_token: str) -> None:
    guard = Guard(Config(), 7722, broker.credentials)
    caller = await guard.identify(head_of(authorization=f"Bearer {admin_token}", x_agent_id="bob"), CLIENT)
    assert caller.agent_id == "bob"
    assert caller.is_admin


async def test_controllers_are_told_apart_by_connection_and_by_the_name_they_choose(
    broker: FakeBroker, alice_token: str
) -> None:
    guard = Guard(Config(), 7722, broker.credentials)
    head = head_of(authorization=f"Bearer {alice_token}")
    one, other = await guard.identify(head, CLIENT), await guard.identify(head, ("127.0.0.1", 50_001))
    assert one.controller_id != other.controller_id
    assert as_controller(one, "planner").controller_id == as_controller(other, "planner").controller_id


async def test_a_chosen_controller_name_stays_bound_to_the_credential(broker: FakeBroker) -> None:
    guard = Guard(Config(), 7722, broker.credentials)
    names = set()
    for agent in ("alice", "bob"):
        token, _ = await broker.credentials.create(agent, ["browse"])
        caller = await guard.identify(head_of(authorization=f"Bearer {token}"), CLIENT)
        names.add(as_controller(caller, "planner").controller_id)
    assert len(names) == 2


async def test_the_controller_named_in_an_action_reaches_the_verb(alice: httpx.AsyncClient, broker: FakeBroker) -> None:
    await alice.post("/tabs/tab_1/action", json={"kind": "text", "controllerId": "planner"})
    (caller,) = broker.commands.callers
    assert caller.controller_id.endswith("/planner")


def test_acting_for_oneself_changes_nothing() -> None:
    from tabherd.broker.caller import Caller

    caller = Caller(agent_id="alice", scopes=frozenset({"browse"}), controller_id="c/1")
    assert act_for(caller, "alice", "agentId") is caller


# --- Rate -------------------------------------------------------------------------------------------------------


async def test_a_hasty_credential_is_told_to_slow_down_and_others_are_not(broker: FakeBroker) -> None:
    now = 100.0
    guard = Guard(parse({"auth": {"rate_per_s": 10, "rate_burst": 10}}), 7722, broker.credentials, clock=lambda: now)
    alice, _ = await broker.credentials.create("alice", ["browse"])
    bob, _ = await broker.credentials.create("bob", ["browse"])
    for _ in range(10):
        await guard.identify(head_of(authorization=f"Bearer {alice}"), CLIENT)
    with pytest.raises(RateLimited) as caught:
        await guard.identify(head_of(authorization=f"Bearer {alice}"), CLIENT)
    assert caught.value.retry_after_ms == 100
    await guard.identify(head_of(authorization=f"Bearer {bob}"), CLIENT)
    now += 0.1
    await guard.identify(head_of(authorization=f"Bearer {alice}"), CLIENT)


async def test_an_admin_is_never_limited(broker: FakeBroker, admin_token: str) -> None:
    settings = parse({"auth": {"rate_per_s": 1, "rate_burst": 1}})
    guard = Guard(settings, 7722, broker.credentials, clock=lambda: 0.0)
    for _ in range(50):
        await guard.identify(head_of(authorization=f"Bearer {admin_token}"), CLIENT)
