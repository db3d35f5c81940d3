"""Which hosts a policy allows: by name, by address, by what an address carries, and however it is spelled."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.egress.policy import Judge, Policy, Rules, carried, is_public, read_host, read_pinned, unmapped
from tabherd.errors import PolicyDenied

PUBLIC = "93.184.216.34"


def reached(host: str, *addresses: str, port: int = 80, **settings: Any) -> list[str]:
    """What may be connected to for that host, if names lead to these addresses; else the reason for the refusal."""
    judge = Judge(Policy(**settings))
    read = read_host(host)
    try:
        judge.judge_name(read)
        known = judge.known_addresses(read)
        found = [ip_address(address) for address in addresses] if known is None else known
        return [str(address) for address in judge.judge_addresses(read, found, port)]
    except PolicyDenied as refusal:
        return [refusal.details["reason"]]


# --- Hosts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling",
    [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "::ffff:127.0.0.1",
        "[::FFFF:7F00:0001]",
    ],
)
def test_every_spelling_of_an_address_is_that_address(spelling: str) -> None:
    assert read_host(spelling) == ip_address("127.0.0.1")


@pytest.mark.parametrize("spelling", ["Example.COM", "example.com."])
def test_names_are_compared_without_case_and_final_dot(spelling: str) -> None:
    assert read_host(spelling) == "example.com"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        "a b",
        "a/b",
        "a@b",
        "user:pass@b",
        "1.2.3.4.5",
        "1.2.3.999",
        "256.256.256.256",
        "0x",
        "a" * 64,
        "a." * 127 + "aa",
        "[127.0.0.1]",
        "[fe80::1%eth0]",
        "[::1",
        "::1]",
        "[:::]",
        "bücher.example",
        "a\x00b",
        "*",
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'"):
        read_host(text)


@settings(max_examples=60)
@given(st.text(max_size=80))
def test_any_text_is_a_host_or_a_refusal(text: str) -> None:
    try:
        host = read_host(text)
    except ValueError:
        return
    assert read_host(f"[{host}]" if ":" in str(host) else str(host)) == host


# --- Names ----------------------------------------------------------------------------------------------------------


def test_without_rules_everything_is_reached() -> None:
    assert reached("example.com", PUBLIC, "10.0.0.1") == [PUBLIC, "10.0.0.1"]


def test_with_allow_hosts_nothing_else_is_reached() -> None:
    allow = ("example.com", "*.example.org")
    assert reached("example.com", PUBLIC, allow_hosts=allow) == [PUBLIC]
    assert reached("a.b.example.org", PUBLIC, allow_hosts=allow) == [PUBLIC]
    for other in ("www.example.com", "example.org", "badexample.org", "org", "example.com.evil.test", PUBLIC):
        assert reached(other, PUBLIC, allow_hosts=allow) == ["not_allowed"], other


def test_deny_hosts_wins_over_allow_hosts() -> None:
    rules = {"allow_hosts": ("*.example.com",), "deny_hosts": ("bad.example.com", "*.bad.example.com")}
    assert reached("good.example.com", PUBLIC, **rules) == [PUBLIC]
    assert reached("bad.example.com", PUBLIC, **rules) == ["denied_host"]
    assert reached("very.bad.example.com", PUBLIC, **rules) == ["denied_host"]


@pytest.mark.parametrize(
    ("rules", "reason"), [({"deny_hosts": ("x.test",)}, "denied_host"), ({"allow_hosts": ("y.test",)}, "not_allowed")]
)
def test_a_refused_name_is_refused_before_it_is_looked_up(rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(PolicyDenied) as refusal:
        Judge(Policy(**rules)).judge_name("x.test")
    assert refusal.value.details == {"host": "x.test", "reason": reason}


# --- Addresses ------------------------------------------------------------------------------------------------------


def test_a_denied_network_is_out_of_reach_by_name_too() -> None:
    assert reached("10.1.2.3", deny_hosts=("10.0.0.0/8",)) == ["denied_host"]
    assert reached("wiki.test", "10.1.2.3", deny_hosts=("10.0.0.0/8",)) == ["denied_host"]


@pytest.mark.parametrize(
    "address", ["[::ffff:10.1.2.3]", "[64:ff9b::10.1.2.3]", "[2002:a01:203::1]", "[2001:0:a01:203::1]"]
)
def test_a_denied_network_is_out_of_reach_inside_other_addresses(address: str) -> None:
    assert reached(address, deny_hosts=("10.0.0.0/8",)) == ["denied_host"]


def test_an_allowed_network_is_reached_by_address_and_by_name() -> None:
    allow = ("10.0.0.0/8",)
    assert reached("10.1.2.3", allow_hosts=allow) == ["10.1.2.3"]
    assert reached("wiki.test", "10.1.2.3", allow_hosts=allow) == ["10.1.2.3"]
    assert reached("wiki.test", PUBLIC, allow_hosts=allow) == ["not_allowed"]


def test_a_network_that_is_written_as_mapped_ipv6_is_that_ipv4_network() -> None:
    assert reached("10.1.2.3", deny_hosts=("::ffff:10.0.0.0/104",)) == ["denied_host"]


def test_only_the_allowed_ones_of_several_addresses_are_reached() -> None:
    assert reached("x.test", "127.0.0.1", PUBLIC, "::1", deny_private_networks=True) == [PUBLIC]


PRIVATE = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1"),
    *("172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fc00::1", "fd12:3456::1", "ff02::1", "fec0::1", "2001:db8::1", "3fff::1", "100::1"),
    *("::127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:7f00:1::1"),
    *("2002:a00:1::", "2001:0:4136:e378::1", "5f00::1", "4000::1"),
]
OPEN = [
    "1.1.1.1",
    PUBLIC,
    "100.63.255.255",
    "100.128.0.1",
    "172.15.0.1",
    "172.32.0.1",
    "192.167.0.1",
    "198.17.0.1",
    *("223.255.255.255", "2606:4700::1111", "2a00:1450::1", "64:ff9b::1.1.1.1", "2002:101:101::1", "::ffff:1.1.1.1"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_private(address: str) -> None:
    assert not is_public(ip_address(address))
    assert reached("x.test", address, deny_private_networks=True) == ["private_network"]


@pytest.mark.parametrize("address", OPEN)
def test_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))
    assert reached("x.test", address, deny_private_networks=True) == [str(unmapped(ip_address(address)))]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "a.localhost", "127.1", "[::1]", "0.0.0.0", "0", "[::]", "2130706433"]
)
def test_no_name_of_this_machine_gets_around_the_denial_of_private_networks(host: str) -> None:
    assert reached(host, PUBLIC, deny_private_networks=True) == ["private_network"]


@given(st.ip_addresses(v=6))
def test_an_address_is_never_more_public_than_the_one_it_carries(address: Any) -> None:
    if not all(map(is_public, carried(address))):
        assert not is_public(address)


def test_a_private_address_in_allow_hosts_is_reached_by_that_address_and_by_no_name() -> None:
    rules: dict[str, Any] = {"allow_hosts": ("10.1.2.3", "*.test"), "deny_private_networks": True}
    assert reached("10.1.2.3", **rules) == ["10.1.2.3"]
    assert reached("evil.test", "10.1.2.3", **rules) == ["private_network"]
    assert reached("10.1.2.4", **rules) == ["not_allowed"]


# --- Pinned names ---------------------------------------------------------------------------------------------------


def test_a_pinned_name_leads_to_its_address_also_when_that_is_private() -> None:
    rules: dict[str, Any] = {"pinned_hosts": {"Wiki.test": "10.1.2.3"}, "deny_private_networks": True}
    assert reached("wiki.test", PUBLIC, **rules) == ["10.1.2.3"]
    assert reached("other.test", "10.1.2.3", **rules) == ["private_network"]


def test_a_pinned_name_is_not_thereby_allowed() -> None:
    pinned = {"wiki.test": "10.1.2.3"}
    assert reached("wiki.test", allow_hosts=("x.test",), pinned_hosts=pinned) == ["not_allowed"]
    assert reached("wiki.test", deny_hosts=("wiki.test",), pinned_hosts=pinned) == ["denied_host"]
    assert reached("wiki.test", deny_hosts=("10.0.0.0/8",), pinned_hosts=pinned) == ["denied_host"]


@pytest.mark.parametrize(
    "pinned", [{"10.0.0.1": "10.0.0.2"}, {"a.test": "b.test"}, {"*.a.test": "10.0.0.1"}, {"a.test": ""}]
)
def test_a_pin_is_from_a_name_to_an_address(pinned: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^'"):
        read_pinned(pinned)


# --- Closed ports ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "pin.test"],
)
def test_closed_ports_of_this_machine_are_refused_whatever_is_allowed(host: str) -> None:
    rules: dict[str, Any] = {
        "allow_hosts": ("127.0.0.0/8", "::/0", "0.0.0.0", "localhost", "pin.test"),
        "pinned_hosts": {"pin.test": "127.0.0.1"},
        "closed_ports": (9222,),
    }
    assert reached(host, port=9222, **rules) == ["closed_port"]
    assert reached(host, port=9223, **rules) != ["closed_port"]


def test_the_same_port_of_another_machine_is_not_closed() -> None:
    assert reached("x.test", PUBLIC, port=9222, closed_ports=(9222,)) == [PUBLIC]


# --- Rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    ["*", "*.", "*.10.0.0.1", "10.0.0.1/8", "10.0.0.0/33", "a.test/24", "http://a.test", "a.test:80", "a.*.test", ""],
)
def test_an_entry_that_is_no_host_is_refused_with_its_text(entry: str) -> None:
    with pytest.raises(ValueError, match=r"'"):
        Rules((entry,))
