"""Decides which hosts the pages of a pool may reach: by name before it is looked up, by address before it is connected.

Pure: names come in, verdicts go out; looking up and connecting is done elsewhere.

Invariants:
- A refusal by deny_hosts wins over everything, and a refused name is not even looked up: that would tell somebody.
- A name whose addresses are looked up never leads to a private one while `deny_private_networks` is set, whoever
  answers for it. Only an address that the operator wrote down (in allow_hosts, or for a name in pinned_hosts) does.
- Closed ports of this machine, the proxy's own and those that drive browsers, are refused whatever the policy says.
- An IPv6 address that carries an IPv4 address (mapped, NAT64, 6to4, Teredo) is never better than the one it carries.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

import msgspec

from ..errors import PolicyDenied

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
# A name in lower case without a final dot, or the address that was written instead of one.
Host = str | Address

NAME_MAX_CHARS: Final = 253
_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
# The last label of what a browser takes for an IPv4 address, however it is spelled.
_NUMBER: Final = re.compile(r"(?:\d+|0x[0-9a-f]*)")
_ANY_IPV4: Final = re.compile(r"[0-9a-fx]+(?:\.[0-9a-fx]+){0,3}")

# What is not the public internet, by the registries of special-purpose addresses.
_SPECIAL_IPV4: Final = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        ),
    )
)
# The only part of IPv6 that is given out for public use, and what is not public within it.
_GLOBAL_IPV6: Final = IPv6Network("2000::/3")
_SPECIAL_IPV6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_6TO4: Final = IPv6Network("2002::/16")
_LOCALHOST: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What one pool says about the network, as it is written in the configuration."""

    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    deny_private_networks: bool = False
    pinned_hosts: Mapping[str, str] = {}
    # Ports of this machine that are out of reach.
    closed_ports: tuple[int, ...] = ()


class Rules:
    """A list of hosts: names, `*.` and a name for all below it, addresses, networks."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Raises ValueError, with the entry and what is wrong with it."""
        names: set[str] = set()
        parents: set[str] = set()
        networks: list[Network] = []
        for entry in entries:
            is_parent = entry.startswith("*.")
            if "/" in entry:
                networks.append(_read_network(entry))
            elif isinstance(host := read_host(entry[2:] if is_parent else entry), str):
                (parents if is_parent else names).add(host)
            elif is_parent:
                raise ValueError(f"'{entry}': only names have others below them")
            else:
                networks.append(ip_network(host))
        self._names = names
        self._parents = parents
        self._networks = networks

    def __bool__(self) -> bool:
        return bool(self._names or self._parents or self._networks)

    @property
    def has_networks(self) -> bool:
        return bool(self._networks)

    def has_name(self, name: str) -> bool:
        if name in self._names:
            return True
        rest = name
        while self._parents and (rest := rest.partition(".")[2]):
            if rest in self._parents:
                return True
        return False

    def has_address(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


class Judge:
    """The policy of one pool, ready to be asked. Refusals are `PolicyDenied`."""

    def __init__(self, policy: Policy) -> None:
        """Raises ValueError when an entry is no host."""
        self._allow = Rules(policy.allow_hosts)
        self._deny = Rules(policy.deny_hosts)
        self._pinned = read_pinned(policy.pinned_hosts)
        self._denies_private = policy.deny_private_networks
        self._closed_ports = frozenset(policy.closed_ports)

    def judge_name(self, host: Host) -> None:
        """Refuse what needs no address to be refused."""
        if not isinstance(host, str):
            return
        if self._deny.has_name(host):
            raise _denied(host, "denied_host", f"{host} is among the pool's deny_hosts.")
        # A name that is not allowed as such may still lead to an address that is.
        if self._allow and not self._allow.has_name(host) and not self._allow.has_networks:
            raise _denied(host, "not_allowed", f"{host} is not among the pool's allow_hosts.")

    def known_addresses(self, host: Host) -> Sequence[Address] | None:
        """Where the host is, if nobody needs to be asked."""
        if not isinstance(host, str):
            return (host,)
        if (pinned := self._pinned.get(host)) is not None:
            return (pinned,)
        # By definition, and browsers do not ask either.
        return _LOCALHOST if host == "localhost" or host.endswith(".localhost") else None

    def judge_addresses(self, host: Host, addresses: Iterable[Address], port: int) -> list[Address]:
        """Those of the host's addresses that may be connected to; refused when there is none."""
        self.judge_name(host)
        reached: list[Address] = []
        refusals: list[PolicyDenied] = []
        for address in map(unmapped, addresses):
            refusal = self._refusal(host, address, port)
            if refusal is None:
                reached.append(address)
            else:
                refusals.append(refusal)
        if not reached and refusals:
            raise refusals[0]
        return reached

    def _refusal(self, host: Host, address: Address, port: int) -> PolicyDenied | None:
        if port in self._closed_ports and is_here(address):
            return _denied(host, "closed_port", f"Port {port} of this machine is out of reach of pages.")
        if any(self._deny.has_address(each) for each in (address, *carried(address))):
            return _denied(host, "denied_host", f"{host} leads to an address among the pool's deny_hosts.")
        is_allowed_address = self._allow.has_address(address)
        if self._allow and not is_allowed_address and not (isinstance(host, str) and self._allow.has_name(host)):
            return _denied(host, "not_allowed", f"{host} is not among the pool's allow_hosts.")
        if self._denies_private and not is_public(address) and not self._is_written_down(host, is_allowed_address):
            return _denied(host, "private_network", f"{host} is in a private network, which the pool does not reach.")
        return None

    def _is_written_down(self, host: Host, is_allowed_address: bool) -> bool:
        """Whether the operator, and not somebody's name server, said that this address is meant."""
        return host in self._pinned if isinstance(host, str) else is_allowed_address


def read_host(text: str) -> Host:
    """The host as a browser understands it, so that no spelling of it is judged differently. ValueError: it is none."""
    host = text.lower().removesuffix(".")
    if host.startswith("[") and host.endswith("]") and ":" in host:
        host = host[1:-1]
    if ":" in host:
        if "%" in host:
            raise ValueError(f"'{text}' names a network interface")
        try:
            return unmapped(IPv6Address(host))
        except ValueError:
            raise ValueError(f"'{text}' is no IPv6 address") from None
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        try:
            # Also 127.1, 0x7f000001, 2130706433 and 0177.0.0.1, which all lead to the same place.
            return IPv4Address(socket.inet_aton(host if _ANY_IPV4.fullmatch(host) else ""))
        except OSError:
            raise ValueError(f"'{text}' is no IPv4 address") from None
    if len(host) > NAME_MAX_CHARS or not _NAME.fullmatch(host):
        hint = "" if host.isascii() else "; write it as browsers send it, beginning with xn--"
        raise ValueError(f"'{text}' is no host name{hint}")
    return host


def read_pinned(pinned_hosts: Mapping[str, str]) -> dict[str, Address]:
    """Names and the addresses the operator gave them. Raises ValueError, with what is wrong."""
    pinned: dict[str, Address] = {}
    for text, where in pinned_hosts.items():
        name, address = read_host(text), read_host(where)
        if not isinstance(name, str):
            raise ValueError(f"'{text}' is an address, not a name")
        if isinstance(address, str):
            raise ValueError(f"'{where}' is a name, not an address")
        pinned[name] = address
    return pinned


def unmapped(address: Address) -> Address:
    """An IPv4 address that is written as IPv6 is that IPv4 address: the kernel connects to it."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def carried(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that a translator or tunnel would take from this one."""
    if isinstance(address, IPv4Address):
        return ()
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return tuple(each for each in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())) if each is not None)


def is_public(address: Address) -> bool:
    """Whether this is an address on the internet, as opposed to this machine and the networks around it."""
    match address:
        case IPv4Address():
            return not any(address in network for network in _SPECIAL_IPV4)
        case IPv6Address():
            if address in _MAPPED or address in _NAT64 or address in _6TO4:
                return all(map(is_public, carried(address)))
            return address in _GLOBAL_IPV6 and not any(address in network for network in _SPECIAL_IPV6)


def is_here(address: Address) -> bool:
    """Whether it leads to what listens on the loopback address; the kernel takes the unspecified one for it, too."""
    return any(each.is_loopback or each.is_unspecified for each in (address, *carried(address)))


def _read_network(text: str) -> Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is no network: {error}") from None
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - 96))
    return network


def _denied(host: Host, reason: str, message: str) -> PolicyDenied:
    return PolicyDenied(message, host=str(host), reason=reason)
