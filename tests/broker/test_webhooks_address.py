"""A callback URL is understood in one way only, and leads to public addresses unless the operator said otherwise."""

from __future__ import annotations

import asyncio
import socket
import threading
from ipaddress import ip_address
from typing import Any

import pytest
from tests.broker.outbox import settings_of

from tabherd import errors
from tabherd.broker import webhook_address
from tabherd.broker.webhook_address import Judge, Lookups, Target, read_target
from tabherd.browsers.debug_port import RESTRICTED_PORTS


def check(url: str, *allow_hosts: str) -> None:
    """As at submission."""
    Judge(allow_hosts).judge_literal(read_target(url))


# --- URLs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://hooks.test/in?a=b", Target(scheme="https", host="hooks.test", port=443, path="/in?a=b")),
        ("HTTP://Hooks.Test", Target(scheme="http", host="hooks.test", port=80, path="/")),
        ("http://hooks.test.:81/", Target(scheme="http", host="hooks.test", port=81, path="/")),
        ("http://hooks.test:/", Target(scheme="http", host="hooks.test", port=80, path="/")),
        ("https://hooks.test?a=b#c", Target(scheme="https", host="hooks.test", port=443, path="/?a=b")),
        ("https://hooks.test/a@b:c", Target(scheme="https", host="hooks.test", port=443, path="/a@b:c")),
        ("https://hooks.test:65535/", Target(scheme="https", host="hooks.test", port=65535, path="/")),
        ("http://8.8.8.8/", Target(scheme="http", host=ip_address("8.8.8.8"), port=80, path="/")),
        ("http://[2a00:1450::1]:8/", Target(scheme="http", host=ip_address("2a00:1450::1"), port=8, path="/")),
        ("http://[::ffff:8.8.8.8]/", Target(scheme="http", host=ip_address("8.8.8.8"), port=80, path="/")),
    ],
)
def test_a_url_is_read_into_its_parts(url: str, target: Target) -> None:
    assert read_target(url) == target


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://hooks.test/", "http:// or https://"),
        ("file:///etc/passwd", "http:// or https://"),
        ("gopher://hooks.test/", "http:// or https://"),
        ("//hooks.test/", "http:// or https://"),
        ("hooks.test/in", "http:// or https://"),
        ("https:/hooks.test", "http:// or https://"),
        ("", "http:// or https://"),
        ("https://user:geheim@hooks.test/", "credentials"),
        ("https://user@hooks.test/", "credentials"),
        ("https://@hooks.test/", "credentials"),
        ("https://hooks.test@127.0.0.1/", "credentials"),
        ("https://", "no host"),
        ("https:///in", "no host"),
        ("https://:443/", "no host"),
        ("https://a:b:c/", "no host"),
        ("https://[::1/", "no host"),
        ("https://::1/", "no host"),
        ("https://hooks.test:http/", "no host"),
        ("https://hooks.test:123456/", "no host"),
        ("https://hooks.test:-1/", "no host"),
        ("https://hooks.test:0/", "port 0"),
        ("https://hooks.test:65536/", "port 65536"),
        ("https://[fe80::1%25eth0]/", "no host"),
        ("https://a..b/", "no host name"),
        ("https://%31%32%37.0.0.1/", "no IPv4 address"),
        ("https://%6cocalhost/", "no host name"),
        ("https://1.2.3.4.5/", "no IPv4 address"),
        ("https://999.1.1.1/", "no IPv4 address"),
        ("https://hööks.test/", "ASCII"),
        ("https://hooks.test/ü", "ASCII"),
        ("https://hooks.test/a b", "blanks"),
        (" https://hooks.test/", "blanks"),
        ("https://hooks.test/\n", "blanks"),
        ("https://hooks.test/\r\nX-Evil: 1", "blanks"),
        ("https://hooks\t.test/", "blanks"),
        ("https://hooks.test\\@127.0.0.1/", "backslashes"),
        ("https://hooks.test/\\evil", "backslashes"),
        ("https://hooks.test/" + "a" * 2_000, "longer"),
    ],
)
def test_what_cannot_be_delivered_to_is_refused_at_submission(url: str, reason: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=reason) as caught:
        check(url)
    assert caught.value.details["field"] == "callbackUrl"


def test_credentials_of_a_refused_url_are_not_repeated() -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        check("https://user:geheim@hooks.test/")
    assert "geheim" not in str(caught.value.to_wire())


@pytest.mark.parametrize(
    ("url", "authority", "at"),
    [
        ("https://hooks.test/in", "hooks.test", "https://8.8.8.8:443/in"),
        ("https://hooks.test:444/in", "hooks.test:444", "https://8.8.8.8:444/in"),
        ("http://[2a00::1]/in", "[2a00::1]", "http://8.8.8.8:80/in"),
    ],
)
def test_the_address_takes_the_place_of_the_name_in_the_url_but_not_in_the_host_header(
    url: str, authority: str, at: str
) -> None:
    target = read_target(url)
    assert target.authority == authority
    assert target.at(ip_address("8.8.8.8")) == at


def test_an_ipv6_address_is_bracketed() -> None:
    assert read_target("https://hooks.test/in").at(ip_address("2a00::1")) == "https://[2a00::1]:443/in"


# --- Addresses --------------------------------------------------------------------------------------------------

REFUSED = [
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.0.0.1."),
    *("0.0.0.0", "0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255"),
    *("169.254.169.254", "2852039166", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:10.0.0.1]", "[::127.0.0.1]"),
    *("[fe80::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[2001:db8::1]"),
    *("[64:ff9b::10.0.0.1]", "[2002:0a00:0001::1]", "[2002:7f00:0001::]"),
]


@pytest.mark.parametrize("host", REFUSED)
def test_an_address_that_is_not_public_is_refused_at_submission_however_it_is_spelled(host: str) -> None:
    with pytest.raises(errors.PolicyDenied, match="not a public address"):
        check(f"http://{host}/")


@pytest.mark.parametrize("host", ["8.8.8.8", "100.63.255.255", "172.32.0.1", "[2a00:1450::1]", "[::ffff:8.8.8.8]"])
def test_a_public_address_may_be_called(host: str) -> None:
    check(f"http://{host}:1234/")


def test_a_name_is_not_looked_up_at_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("looked up"))
    check("http://intranet/")


@pytest.mark.parametrize(
    ("host", "address", "allow"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("10.1.2.3", "10.1.2.3", "10.0.0.0/8"),
        ("[::1]", "::1", "::1"),
        ("hooks.corp", "10.1.2.3", "hooks.corp"),
        ("hooks.corp", "10.1.2.3", "*.corp"),
        ("hooks.corp", "10.1.2.3", "10.1.2.3"),
        ("[::ffff:10.1.2.3]", "::ffff:10.1.2.3", "10.1.2.3"),
    ],
)
def test_what_the_operator_wrote_down_may_be_called(host: str, address: str, allow: str) -> None:
    target = read_target(f"http://{host}/")
    with pytest.raises(errors.PolicyDenied):
        Judge(()).judge(target, [ip_address(address)])
    assert Judge([allow]).judge(target, [ip_address(address)])


def test_a_list_of_allowed_hosts_does_not_close_the_rest_of_the_internet() -> None:
    check("http://8.8.8.8/", "127.0.0.1")


def test_an_allowed_host_allows_no_other() -> None:
    with pytest.raises(errors.PolicyDenied):
        check("http://127.0.0.2/", "127.0.0.1", "localhost")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "0.0.0.0"])
def test_ports_that_drive_browsers_are_refused_even_on_an_allowed_host(host: str) -> None:
    allowed = ("127.0.0.1", "::1", "0.0.0.0")
    check(f"http://{host}:8080/", *allowed)
    for port in RESTRICTED_PORTS:
        with pytest.raises(errors.PolicyDenied):
            check(f"http://{host}:{port}/", *allowed)


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(errors.PolicyDenied):
        Judge(()).judge(read_target("http://hooks.test/"), [])


def test_a_list_of_hosts_with_something_else_in_it_is_refused_by_the_configuration() -> None:
    with pytest.raises(errors.InvalidRequest, match=r"webhooks\.allow_hosts"):
        settings_of(allow_hosts=["http://hooks.test/"])


# --- Lookups ----------------------------------------------------------------------------------------------------


def answer(*addresses: str) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]


async def test_a_name_has_each_of_its_addresses_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer("8.8.8.8", "fe80::1%eth0", "8.8.8.8")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert await Lookups()("hooks.test") == [ip_address("8.8.8.8"), ip_address("fe80::1")]


@pytest.mark.parametrize("error", [socket.gaierror(socket.EAI_NONAME, "unknown"), UnicodeError("unknown")])
async def test_a_name_that_nobody_knows_is_an_error_of_the_network(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(OSError, match="unknown"):
        await Lookups()("hooks.test")


async def test_lookups_that_hang_are_bounded_and_make_room_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_address, "LOOKUPS_MAX", 2)
    goes_on, hanging = threading.Event(), threading.Semaphore(0)

    def hang(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        hanging.release()
        goes_on.wait()
        return answer("8.8.8.8")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    look_up = Lookups()
    try:
        waiting = [asyncio.ensure_future(look_up("slow.test")) for _ in range(2)]
        await asyncio.to_thread(lambda: [hanging.acquire() for _ in range(2)])
        # Whoever stops waiting leaves its thread behind, which still counts.
        waiting[0].cancel()
        with pytest.raises(OSError, match="too many"):
            await look_up("other.test")
    finally:
        goes_on.set()
    assert await waiting[1] == [ip_address("8.8.8.8")]
    while look_up._at_work:
        await asyncio.sleep(0)
    assert await look_up("other.test") == [ip_address("8.8.8.8")]
