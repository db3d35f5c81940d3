"""The dashboard's files: every one is served, whole, once, and under a policy that lets nothing else in."""

from __future__ import annotations

import gzip
import re
from importlib import resources
from pathlib import PurePosixPath

import httpx
import msgspec
import pytest

from tabherd.edge.assets import ASSETS, FRONT, MEDIA, POLICY, find
from tabherd.errors import CATALOGUE, ResourceNotFound

FILES = sorted(file.name for file in resources.files("tabherd.edge").joinpath("dashboard").iterdir())
# The one file that the server writes itself.
WRITTEN = "next-steps.js"
# What the whole dashboard may weigh on its way to a browser.
PACKED_MAX_BYTES = 150_000


async def plain(client: httpx.AsyncClient, path: str) -> httpx.Response:
    return await client.get(path, headers={"Accept-Encoding": "identity"})


def test_every_file_of_the_dashboard_has_a_type_and_is_served() -> None:
    assert {PurePosixPath(name).suffix for name in FILES} <= set(MEDIA)
    assert set(ASSETS) == {*FILES, WRITTEN}


async def test_what_to_do_about_each_error_is_served_as_a_module(anybody: httpx.AsyncClient) -> None:
    answer = await plain(anybody, f"/ui/{WRITTEN}")
    assert answer.headers["content-type"] == MEDIA[".js"]
    steps = msgspec.json.decode(answer.text.partition("= ")[2].rstrip().removesuffix(";"))
    assert steps == {code: error.next_step for code, error in CATALOGUE.items()}


async def test_a_file_is_served_as_it_is_with_its_type(anybody: httpx.AsyncClient) -> None:
    for name in FILES:
        answer = await plain(anybody, f"/ui/{name}")
        assert answer.content == resources.files("tabherd.edge").joinpath("dashboard", name).read_bytes()
        assert answer.headers["content-type"] == MEDIA[PurePosixPath(name).suffix]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "content-encoding" not in answer.headers


async def test_a_browser_that_understands_it_gets_the_same_file_compressed(anybody: httpx.AsyncClient) -> None:
    for name in FILES:
        async with anybody.stream("GET", f"/ui/{name}", headers={"Accept-Encoding": "gzip, deflate, br"}) as answer:
            raw = b"".join([piece async for piece in answer.aiter_raw()])
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "accept-encoding"
        assert int(answer.headers["content-length"]) == len(raw)
        assert gzip.decompress(raw) == (await plain(anybody, f"/ui/{name}")).content


@pytest.mark.parametrize("path", ["/", "/ui/style.css"])
async def test_what_a_browser_has_already_is_not_sent_again(anybody: httpx.AsyncClient, path: str) -> None:
    first = await anybody.get(path)
    again = await anybody.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert "content-length" not in again.headers


@pytest.mark.parametrize("tag", ['W/{}, "other"', '"other", {}'])
async def test_a_tag_is_found_among_others_and_as_a_proxy_spells_it(anybody: httpx.AsyncClient, tag: str) -> None:
    etag = (await anybody.get("/")).headers["etag"]
    assert (await anybody.get("/", headers={"If-None-Match": tag.format(etag)})).status_code == 304


async def test_a_file_that_has_changed_is_sent_anew(anybody: httpx.AsyncClient) -> None:
    answer = await anybody.get("/", headers={"If-None-Match": '"of another version"'})
    assert answer.status_code == 200
    assert answer.content


async def test_a_browser_keeps_files_but_asks_each_time(anybody: httpx.AsyncClient) -> None:
    # What a new version of the server brings is there at the next load; nothing is kept by proxies in between.
    for path in ("/", "/ui/app.js"):
        assert (await anybody.get(path)).headers["cache-control"] == "no-cache"
    assert (await anybody.get("/health")).headers["cache-control"] == "no-store"


def test_each_file_has_a_tag_of_its_own() -> None:
    tags = {asset.etag for asset in ASSETS.values()}
    assert len(tags) == len(ASSETS)
    assert all(re.fullmatch(rb'"[0-9a-f]{20}"', tag) for tag in tags)


@pytest.mark.parametrize(
    "name", ["", "nothing.js", "app", "index.HTML", "../assets.py", "..%2Fassets.py", "%2e%2e%2fassets.py", "a%00.js"]
)
async def test_there_is_nothing_else_there(anybody: httpx.AsyncClient, name: str) -> None:
    assert (await anybody.get(f"/ui/{name}")).status_code == 404


def test_an_unknown_file_is_told_with_what_to_do() -> None:
    with pytest.raises(ResourceNotFound) as caught:
        find("nothing.js")
    assert "/" in caught.value.action


async def test_the_page_comes_with_the_policy_and_is_the_front_file(anybody: httpx.AsyncClient) -> None:
    answer = await anybody.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.content == ASSETS[FRONT].plain
    assert (await anybody.get(f"/ui/{FRONT}")).headers["content-security-policy"] == POLICY


def test_the_policy_allows_this_server_and_nothing_else() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert (rules["script-src"], rules["style-src"], rules["connect-src"]) == ("'self'", "'self'", "'self'")
    assert (rules["base-uri"], rules["form-action"], rules["frame-ancestors"]) == ("'none'", "'none'", "'none'")
    assert (rules["require-trusted-types-for"], rules["trusted-types"]) == ("'script'", "'none'")
    assert not re.search(r"unsafe|\*|http", POLICY)


def test_a_file_loads_nothing_from_elsewhere_and_has_nothing_inline() -> None:
    for name in FILES:
        text = ASSETS[name].plain.decode()
        named = set(re.findall(r"""https?://[^\s"'`)]+""", text))
        # Names of dialects, and the example of a command to type: nobody fetches them.
        assert named <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml", "https://example.org"}, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
        if name.endswith(".html"):
            assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?![^>]*\ssrc=)", text), name


def test_a_module_names_only_modules_that_are_there() -> None:
    for name in (name for name in FILES if name.endswith(".js")):
        named = re.findall(r"""(?:from|import)\s*\(?\s*["']\./([^"'$]+)["']""", ASSETS[name].plain.decode())
        assert set(named) <= set(ASSETS), name


def test_what_the_page_loads_beforehand_is_there() -> None:
    named = re.findall(r'(?:href|src)="ui/([^"]+)"', ASSETS[FRONT].plain.decode())
    assert named
    assert set(named) <= set(ASSETS)


def test_the_whole_dashboard_fits_into_a_slow_line() -> None:
    assert sum(len(asset.packed) for asset in ASSETS.values()) <= PACKED_MAX_BYTES


async def test_the_address_that_is_printed_with_a_token_opens_the_page(
    anybody: httpx.AsyncClient, alice_token: str
) -> None:
    answer = await anybody.get("/", params={"token": alice_token})
    assert answer.status_code == 200
    assert alice_token not in answer.text
