"""Logins of people: what the cookie stands for, until when, and that neither it nor its word opens anything alone."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from tabherd.broker.credentials import Credentials
from tabherd.config import Config, parse
from tabherd.edge.auth import Guard
from tabherd.edge.everywhere import credentials_of
from tabherd.edge.forward.request import passed_on
from tabherd.edge.head import Head
from tabherd.edge.http import App
from tabherd.edge.login import LIFE_MS, Login, Logins
from tabherd.errors import InvalidRequest, Unauthenticated
from tabherd.store.memory import MemoryStore

from .conftest import client_of
from .fake_broker import FakeBroker

KEY = b"k" * 32
NOW_MS = 1_700_000_000_000
CLIENT = ("127.0.0.1", 50_000)
ORIGIN = "http://127.0.0.1:7722"


class Clock:
    """Milliseconds since 1970, as the test wants them."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logins(clock: Clock) -> Logins:
    return Logins(KEY, clock=clock)


def cookies_of(logins: Logins, *values: str) -> bytes:
    return "; ".join(f"{logins.cookie_name}={value}" for value in values).encode()


def word_of(login: Login) -> bytes:
    return login.csrf.encode()


# --- Cookie and word --------------------------------------------------------------------------------------------


def test_a_login_is_read_back_as_whose_it_is(logins: Logins) -> None:
    login = logins.sign("crd_1")
    read = logins.read(cookies_of(logins, login.cookie), word_of(login))
    assert (read.credential_id, read.expires_at) == ("crd_1", NOW_MS + LIFE_MS)
    assert login.expires_at == NOW_MS + LIFE_MS


def test_a_login_ends_by_the_clock_and_not_a_moment_later(logins: Logins, clock: Clock) -> None:
    login = logins.sign("crd_1")
    clock.now_ms += LIFE_MS - 1
    assert logins.read(cookies_of(logins, login.cookie), word_of(login)).credential_id == "crd_1"
    clock.now_ms += 1
    with pytest.raises(Unauthenticated, match="too old"):
        logins.read(cookies_of(logins, login.cookie), word_of(login))


def test_no_byte_of_a_cookie_can_be_changed(logins: Logins) -> None:
    raw = bytearray(base64.urlsafe_b64decode(logins.sign("crd_1").cookie + "=="))
    for index in range(len(raw)):
        forged = bytearray(raw)
        forged[index] ^= 1
        cookie = base64.urlsafe_b64encode(forged).rstrip(b"=").decode()
        # Even for somebody who could make the word: the cookie must stand on its own signature.
        with pytest.raises(Unauthenticated, match="not one that this server gave out"):
            logins.read(cookies_of(logins, cookie), logins._word_for(cookie).encode())


def test_no_letter_of_a_cookie_can_be_changed_under_its_word(logins: Logins) -> None:
    login = logins.sign("crd_1")
    for index, letter in enumerate(login.cookie):
        other = "A" if letter != "A" else "B"
        forged = login.cookie[:index] + other + login.cookie[index + 1 :]
        with pytest.raises(Unauthenticated):
            logins.read(cookies_of(logins, forged), word_of(login))


def test_a_cookie_cannot_be_cut_short(logins: Logins) -> None:
    login = logins.sign("crd_1")
    for length in range(1, len(login.cookie)):
        cookie = login.cookie[:length]
        with pytest.raises(Unauthenticated):
            logins.read(cookies_of(logins, cookie), logins._word_for(cookie).encode())


def test_no_letter_of_a_word_can_be_changed(logins: Logins) -> None:
    login = logins.sign("crd_1")
    for index, letter in enumerate(login.csrf):
        forged = login.csrf[:index] + ("0" if letter != "0" else "1") + login.csrf[index + 1 :]
        with pytest.raises(Unauthenticated, match="word"):
            logins.read(cookies_of(logins, login.cookie), forged.encode())


@pytest.mark.parametrize("word", [None, b"", b"\xff"])
def test_a_cookie_without_its_word_is_refused(logins: Logins, word: bytes | None) -> None:
    with pytest.raises(Unauthenticated, match="word"):
        logins.read(cookies_of(logins, logins.sign("crd_1").cookie), word)


def test_the_word_of_another_login_is_refused(logins: Logins) -> None:
    mine, theirs = logins.sign("crd_1"), logins.sign("crd_2")
    with pytest.raises(Unauthenticated, match="word"):
        logins.read(cookies_of(logins, mine.cookie), word_of(theirs))


def test_the_word_says_nothing_about_the_cookie_nor_the_cookie_about_the_word(logins: Logins) -> None:
    login = logins.sign("crd_1")
    raw = base64.urlsafe_b64decode(login.cookie + "==")
    assert bytes.fromhex(login.csrf) not in raw
    assert raw[:32].hex() != login.csrf


def test_a_login_of_another_key_is_not_even_seen(logins: Logins, clock: Clock) -> None:
    other = Logins(b"x" * 32, clock=clock)
    assert other.cookie_name != logins.cookie_name
    login = other.sign("crd_1")
    assert not logins.is_there(cookies_of(other, login.cookie))
    with pytest.raises(Unauthenticated, match=r"not one that this server gave out|word"):
        logins.read(cookies_of(logins, login.cookie), word_of(login))


def test_a_login_is_found_among_the_cookies_of_other_servers_of_this_host(logins: Logins, clock: Clock) -> None:
    other = Logins(b"x" * 32, clock=clock)
    login = logins.sign("crd_1")
    both = cookies_of(other, other.sign("crd_9").cookie) + b"; theme=dark; " + cookies_of(logins, login.cookie)
    assert logins.read(both, word_of(login)).credential_id == "crd_1"


def test_a_cookie_that_only_ends_like_ours_is_not_ours(logins: Logins) -> None:
    assert not logins.is_there(b"x" + cookies_of(logins, logins.sign("crd_1").cookie))


def test_of_two_cookies_of_our_name_neither_is_taken_with_the_word_of_the_other(logins: Logins) -> None:
    # A program on another port of this host can set one of this name, for a longer path.
    mine, planted = logins.sign("crd_1"), logins.sign("crd_mallory")
    with pytest.raises(Unauthenticated, match="word"):
        logins.read(cookies_of(logins, planted.cookie, mine.cookie), word_of(mine))


@pytest.mark.parametrize("cookies", [None, b"", b"a=b", b"tabherd_=x"])
def test_without_a_cookie_nobody_is_logged_in(logins: Logins, cookies: bytes | None) -> None:
    assert not logins.is_there(cookies)
    with pytest.raises(Unauthenticated, match="Nobody"):
        logins.read(cookies, b"word")


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(logins: Logins) -> None:
    login = logins.sign("crd_1")
    name, *attributes = logins.set_cookie(login, is_secure=False).split("; ")
    assert name == f"{logins.cookie_name}={login.cookie}"
    assert set(attributes) == {f"Max-Age={LIFE_MS // 1000}", "Path=/", "HttpOnly", "SameSite=Strict"}
    assert logins.set_cookie(login, is_secure=True).endswith("; Secure")


# --- The guard --------------------------------------------------------------------------------------------------


@pytest.fixture
def credentials() -> Credentials:
    return Credentials(MemoryStore())


@pytest.fixture
def guard(credentials: Credentials, logins: Logins) -> Guard:
    return Guard(Config(), 7722, credentials, logins=logins)


def head_of(**headers: str) -> Head:
    return Head([(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()])


async def logged_in(guard: Guard, credentials: Credentials, agent: str = "alice") -> tuple[str, Login]:
    """The cookie header of a login of that agent, and the login."""
    token, _ = await credentials.create(agent, ["browse"])
    _, login = await guard.log_in(token)
    return cookies_of(guard.logins, login.cookie).decode(), login


async def test_a_login_is_as_good_as_the_token_it_was_given_for(guard: Guard, credentials: Credentials) -> None:
    cookie, login = await logged_in(guard, credentials)
    caller = await guard.identify(head_of(cookie=cookie, x_csrf_token=login.csrf), CLIENT)
    assert (caller.agent_id, caller.scopes) == ("alice", frozenset({"browse"}))


async def test_a_wrong_token_gets_no_login(guard: Guard) -> None:
    with pytest.raises(Unauthenticated):
        await guard.log_in("th_wrong")


async def test_revoking_the_credential_ends_its_logins(guard: Guard, credentials: Credentials) -> None:
    token, credential = await credentials.create("alice", ["browse"])
    _, login = await guard.log_in(token)
    head = head_of(cookie=cookies_of(guard.logins, login.cookie).decode(), x_csrf_token=login.csrf)
    await guard.identify(head, CLIENT)
    await credentials.revoke(credential.id)
    with pytest.raises(Unauthenticated, match="revoked"):
        await guard.identify(head, CLIENT)


async def test_a_token_that_is_there_decides_whatever_the_cookie_says(guard: Guard, credentials: Credentials) -> None:
    cookie, login = await logged_in(guard, credentials)
    word = login.csrf
    bob, _ = await credentials.create("bob", ["browse"])
    caller = await guard.identify(head_of(cookie=cookie, x_csrf_token=word, authorization=f"Bearer {bob}"), CLIENT)
    assert caller.agent_id == "bob"
    with pytest.raises(Unauthenticated):
        await guard.identify(head_of(cookie=cookie, x_csrf_token=word, authorization="Bearer th_wrong"), CLIENT)
    with pytest.raises(Unauthenticated):
        await guard.identify(head_of(cookie=cookie, x_csrf_token=word), CLIENT, "th_wrong")


async def test_a_login_does_not_make_anybody_somebody_else(guard: Guard, credentials: Credentials) -> None:
    cookie, login = await logged_in(guard, credentials)
    with pytest.raises(Exception, match="cannot act for another"):
        await guard.identify(head_of(cookie=cookie, x_csrf_token=login.csrf, x_agent_id="bob"), CLIENT)


async def test_a_socket_may_bring_the_word_in_its_query(guard: Guard, credentials: Credentials) -> None:
    cookie, login = await logged_in(guard, credentials)
    badge = await guard.welcome(head_of(cookie=cookie, origin=ORIGIN), CLIENT, csrf=login.csrf)
    assert badge.caller.agent_id == "alice"


async def test_a_word_in_the_query_counts_for_nothing_without_an_origin(guard: Guard, credentials: Credentials) -> None:
    cookie, login = await logged_in(guard, credentials)
    with pytest.raises(Unauthenticated, match="word"):
        await guard.welcome(head_of(cookie=cookie), CLIENT, csrf=login.csrf)


@pytest.mark.parametrize("csrf", [None, "", "0" * 64, "é"])
async def test_a_socket_with_a_login_but_not_its_word_is_refused(
    guard: Guard, credentials: Credentials, csrf: str | None
) -> None:
    cookie, _ = await logged_in(guard, credentials)
    with pytest.raises(Unauthenticated, match="word"):
        await guard.welcome(head_of(cookie=cookie, origin=ORIGIN), CLIENT, csrf=csrf)


async def test_a_bad_word_in_the_header_is_not_saved_by_a_good_one_in_the_query(
    guard: Guard, credentials: Credentials
) -> None:
    cookie, login = await logged_in(guard, credentials)
    with pytest.raises(Unauthenticated, match="word"):
        await guard.welcome(head_of(cookie=cookie, origin=ORIGIN, x_csrf_token="0" * 64), CLIENT, csrf=login.csrf)


@pytest.mark.parametrize("name", [b"cookie", b"x-csrf-token"])
def test_a_cookie_or_a_word_that_comes_twice_is_refused(guard: Guard, name: bytes) -> None:
    with pytest.raises(InvalidRequest, match="more than once"):
        guard.check_address(Head([(b"host", b"127.0.0.1:7722"), (name, b"a"), (name, b"b")]), None)


async def test_without_a_key_logins_end_with_the_server(credentials: Credentials) -> None:
    one, other = (Guard(Config(), 7722, credentials) for _ in range(2))
    assert one.logins.cookie_name != other.logins.cookie_name


async def test_without_auth_a_login_is_not_looked_at(credentials: Credentials, logins: Logins) -> None:
    guard = Guard(parse({"auth": {"enabled": False}}), 7722, credentials, logins=logins)
    caller = await guard.identify(head_of(cookie=f"{logins.cookie_name}=forged"), CLIENT)
    assert caller.is_admin


# --- The routes -------------------------------------------------------------------------------------------------


@pytest.fixture
async def person(make_app: Callable[..., App]) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that nobody has logged in with yet."""
    async with client_of(make_app(ticket_key=KEY)) as client:
        yield client


async def log_in(person: httpx.AsyncClient, token: str) -> dict[str, str]:
    """The header that goes with the cookie from now on."""
    answer = await person.post("/login", json={"token": token})
    assert answer.status_code == 200
    return {"X-Csrf-Token": answer.json()["csrf"]}


async def test_a_person_is_told_who_they_are_and_gets_a_cookie(person: httpx.AsyncClient, alice_token: str) -> None:
    answer = await person.post("/login", json={"token": alice_token})
    me = answer.json()
    assert (me["agentId"], me["scopes"], me["isAdmin"]) == ("alice", ["browse", "evaluate"], False)
    assert (me["node"], me["version"], me["authEnabled"]) == ("nod_test", "9.9", True)
    assert me["expiresAt"]
    assert answer.headers["set-cookie"].startswith("tabherd_")
    assert alice_token not in answer.text + answer.headers["set-cookie"]
    assert answer.headers["cache-control"] == "no-store"


async def test_a_login_opens_what_its_token_opens(person: httpx.AsyncClient, alice_token: str) -> None:
    word = await log_in(person, alice_token)
    assert (await person.get("/sessions", headers=word)).status_code == 200
    assert (await person.post("/sessions", headers=word)).status_code == 201
    assert (await person.get("/config", headers=word)).status_code == 403


async def test_the_word_in_the_query_does_not_open_an_ordinary_route(
    person: httpx.AsyncClient, alice_token: str
) -> None:
    word = (await log_in(person, alice_token))["X-Csrf-Token"]
    for path in ("/sessions", "/events", "/login"):
        answer = await person.get(path, params={"csrf": word}, headers={"Origin": ORIGIN})
        assert answer.status_code == 401, path


@pytest.mark.parametrize("path", ["/json", "/json/list", "/json/protocol"])
async def test_the_cookie_alone_is_nothing_to_the_addresses_of_cdp(
    person: httpx.AsyncClient, alice_token: str, path: str
) -> None:
    await log_in(person, alice_token)
    assert (await person.get(path)).status_code == 401


async def test_a_page_of_another_origin_gets_nowhere_even_with_both(
    person: httpx.AsyncClient, alice_token: str
) -> None:
    word = await log_in(person, alice_token)
    answer = await person.get("/sessions", headers={**word, "Origin": "http://127.0.0.1:9999"})
    assert answer.status_code == 403


async def test_a_wrong_token_is_refused_and_leaves_no_cookie(person: httpx.AsyncClient) -> None:
    answer = await person.post("/login", json={"token": "th_wrong"})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("body", [b"", b"{}", b'{"token": 1}', b'{"token": "' + b"x" * 201 + b'"}', b"token=th_x"])
async def test_a_login_that_is_no_login_is_refused(person: httpx.AsyncClient, body: bytes) -> None:
    assert (await person.post("/login", content=body)).status_code == 400


async def test_who_one_is_with_a_login_says_when_it_ends(person: httpx.AsyncClient, alice_token: str) -> None:
    given = (await person.post("/login", json={"token": alice_token})).json()
    me = (await person.get("/login", headers={"X-Csrf-Token": given["csrf"]})).json()
    assert (me["agentId"], me["expiresAt"]) == ("alice", given["expiresAt"])
    assert "csrf" not in me or me["csrf"] is None


async def test_who_one_is_with_a_token_has_no_end(alice: httpx.AsyncClient) -> None:
    me = (await alice.get("/login")).json()
    assert me["agentId"] == "alice"
    assert me.get("expiresAt") is None


async def test_logging_out_takes_the_cookie_away(person: httpx.AsyncClient, alice_token: str) -> None:
    word = await log_in(person, alice_token)
    answer = await person.delete("/login")
    assert (answer.status_code, "Max-Age=0" in answer.headers["set-cookie"]) == (204, True)
    assert (await person.get("/sessions", headers=word)).status_code == 401


@pytest.mark.parametrize(("proto", "is_secure"), [({}, False), ({"X-Forwarded-Proto": "https"}, True)])
async def test_behind_a_proxy_with_tls_the_cookie_never_travels_in_the_clear(
    person: httpx.AsyncClient, alice_token: str, proto: dict[str, str], is_secure: bool
) -> None:
    given = await person.post("/login", json={"token": alice_token}, headers=proto)
    taken = await person.delete("/login", headers=proto)
    for answer in (given, taken):
        assert answer.headers["set-cookie"].endswith("; Secure") is is_secure


async def test_a_login_is_in_the_audit(person: httpx.AsyncClient, broker: FakeBroker, alice_token: str) -> None:
    await log_in(person, alice_token)
    assert [(note["agent_id"], note["verb"]) for note in broker.auditor.noted] == [("alice", "login")]


async def test_without_auth_one_is_the_admin_and_gets_no_cookie(make_app: Callable[..., App]) -> None:
    async with client_of(make_app({"auth": {"enabled": False}})) as person:
        for answer in (await person.get("/login"), await person.post("/login", json={"token": ""})):
            me = answer.json()
            assert (me["isAdmin"], me["authEnabled"], me.get("csrf")) == (True, False, None)
            assert "set-cookie" not in answer.headers


# --- Other nodes ------------------------------------------------------------------------------------------------


async def test_a_login_of_one_node_is_good_on_another_of_its_cluster(
    make_app: Callable[..., App], person: httpx.AsyncClient, alice_token: str
) -> None:
    word = await log_in(person, alice_token)
    async with client_of(make_app(ticket_key=KEY)) as there:
        there.cookies = person.cookies
        assert (await there.get("/sessions", headers=word)).status_code == 200


async def test_a_login_of_another_cluster_is_not(
    make_app: Callable[..., App], person: httpx.AsyncClient, alice_token: str
) -> None:
    word = await log_in(person, alice_token)
    async with client_of(make_app(ticket_key=b"x" * 32)) as there:
        there.cookies = person.cookies
        assert (await there.get("/sessions", headers=word)).status_code == 401


def test_the_cookie_and_its_word_go_along_when_a_request_is_passed_on() -> None:
    shown = [(b"cookie", b"tabherd_0=x"), (b"x-csrf-token", b"word")]
    assert passed_on(shown, ()) == shown


def test_the_cookie_and_its_word_go_along_when_all_nodes_are_asked() -> None:
    assert credentials_of(None, None, b"tabherd_0=x", b"word") == (
        (b"cookie", b"tabherd_0=x"),
        (b"x-csrf-token", b"word"),
    )
