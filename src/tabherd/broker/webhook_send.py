"""Sends one webhook: a single POST to an address that was judged before, whatever its name may lead to by now.

Invariants:
- The connection goes to one of the addresses given; the name is only written into the Host header and, with TLS, into
  the handshake, where the certificate must be for it.
- The request is sent at most once: another address is tried only while nothing has been sent.
- A connection serves one request, so nobody gets one that was made for another name at the same address.
- No redirect is followed, no proxy or credential of the environment is used, and little of the answer is read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from ssl import SSLContext
from typing import Final

import httpx
import msgspec

from ..egress.policy import Address
from .webhook_address import Target

# How many of a name's addresses are tried.
ADDRESSES_MAX: Final = 4
# What is read of an answer, and how long that may take: the receiver shall be able to finish, and no more.
ANSWER_MAX_BYTES: Final = 64 * 1024
ANSWER_LIMIT_S: Final = 1.0
# What is kept of an error of the network.
WHY_MAX_CHARS: Final = 200


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be sent, and where to."""

    target: Target
    # Where the target is; judged.
    addresses: Sequence[Address]
    headers: Mapping[str, str]
    body: bytes
    # How long it may take from now until an answer begins, over all addresses.
    limit_s: float


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver answered."""

    status: int
    # The Retry-After header; empty when there was none.
    retry_after: str = ""


class Unanswered(Exception):
    """There was no answer; the message says why."""


Send = Callable[[Post], Awaitable[Reply]]


async def send_pinned(post: Post) -> Reply:
    """The receiver's answer, within the limit; `Unanswered` when there is none."""
    addresses = post.addresses[:ADDRESSES_MAX]
    until_s = asyncio.get_running_loop().time() + post.limit_s
    why = "it has no address"
    for address in addresses:
        try:
            return await _send_to(address, post, post.limit_s / len(addresses), until_s)
        except TimeoutError:
            raise Unanswered("It did not answer in time.") from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            why = str(error) or "it does not answer"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unanswered(f"There was no answer: {str(error)[:WHY_MAX_CHARS] or type(error).__name__}.") from None
    raise Unanswered(f"It cannot be connected to: {why[:WHY_MAX_CHARS]}.")


async def _send_to(address: Address, post: Post, connect_limit_s: float, until_s: float) -> Reply:
    # In a thread, because the first time takes long enough for others to notice.
    transport = httpx.AsyncHTTPTransport(verify=await asyncio.to_thread(_tls), trust_env=False)
    limits = httpx.Timeout(None, connect=connect_limit_s)
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=limits) as client:
        request = client.build_request(
            "POST",
            post.target.at(address),
            headers={**post.headers, "Host": post.target.authority, "Connection": "close"},
            content=post.body,
            extensions={"sni_hostname": str(post.target.host)},
        )
        async with asyncio.timeout_at(until_s):
            response = await client.send(request, stream=True, follow_redirects=False)
        try:
            await _read_a_little(response)
        finally:
            await response.aclose()
        return Reply(status=response.status_code, retry_after=response.headers.get("Retry-After", ""))


async def _read_a_little(response: httpx.Response) -> None:
    read_bytes = 0
    # The status has been heard and stands, whatever becomes of the rest.
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(ANSWER_LIMIT_S):
            # As it came: to unpack it would let a small answer become a large one.
            async for chunk in response.aiter_raw():
                read_bytes += len(chunk)
                if read_bytes >= ANSWER_MAX_BYTES:
                    return


@cache
def _tls() -> SSLContext:
    """Whom we trust: the authorities in SSL_CERT_FILE or SSL_CERT_DIR, or the usual ones. Read once."""
    return httpx.create_ssl_context()
