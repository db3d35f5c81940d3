"""Playwright cases: requests seen, changed, answered and refused; WebSockets; passwords; recordings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Error, Page, Request, Route, WebSocketRoute

from .client import Client, repeating
from .site import LOGIN


async def _ask(page: Page, name: str, **options: Any) -> dict[str, Any]:
    """What the site got when the page asked for that."""
    got = await page.evaluate("([name, options]) => fetch(name, options).then(r => r.text())", [name, options])
    return json.loads(got)


@repeating
async def an_aborted_request_fails_in_the_page(client: Client) -> None:
    page = await client.page("empty")
    await page.route("**/api/*", lambda route: route.abort())
    with pytest.raises(Error, match="Failed to fetch"):
        await _ask(page, "api/x")
    await page.unroute("**/api/*")
    assert (await _ask(page, "api/x"))["name"] == "api/x"


async def a_fulfilled_request_never_reaches_the_site(client: Client) -> None:
    page = await client.blank_page()
    body = f"<title>{client.mark} made up</title>"
    await page.route("**/empty", lambda route: route.fulfill(status=201, content_type="text/html", body=body))
    response = await page.goto(client.url("empty"))
    assert response is not None
    assert (response.status, await page.title()) == (201, f"{client.mark} made up")


async def a_changed_request_reaches_the_site_changed(client: Client) -> None:
    page = await client.page("empty")

    async def change(route: Route) -> None:
        headers = route.request.headers | {"x-added": client.mark}
        await route.continue_(method="POST", headers=headers, post_data="changed")

    await page.route("**/api/*", change)
    got = await _ask(page, "api/x")
    assert (got["method"], got["headers"]["x-added"], got["body"]) == ("POST", client.mark, "changed")


async def a_response_is_changed_on_its_way(client: Client) -> None:
    # Playwright itself asks the site, and it does not know the names that only the browser has.
    page = await client.page("empty", host="127.0.0.1")

    async def change(route: Route) -> None:
        response = await route.fetch()
        await route.fulfill(response=response, json=await response.json() | {"body": "changed"})

    await page.route("**/api/*", change)
    got = await _ask(page, "api/x")
    assert (got["who"], got["body"]) == (client.mark, "changed")


async def a_route_of_a_context_covers_popups_and_far_frames(client: Client) -> None:
    context = await client.new_context()
    seen: list[str] = []

    async def note(route: Route) -> None:
        seen.append(route.request.url)
        await route.continue_()

    await context.route("**/*", note)
    page = await client.page("opener", context)
    async with page.expect_popup() as waiting:
        await page.click("#open")
    await (await waiting.value).wait_for_load_state()
    await page.goto(client.url("frames"))
    assert {client.url("opened"), client.url("inner"), client.url("inner", "b.test")} <= set(seen)


async def requests_and_responses_are_reported(client: Client) -> None:
    page = await client.page("empty")
    ended: list[Request] = []
    page.on("requestfinished", lambda request: ended.append(request))
    async with page.expect_response("**/api/x") as waiting, page.expect_event("requestfinished"):
        await _ask(page, "api/x", method="POST", body=client.mark)
    response = await waiting.value
    assert (await response.json())["body"] == client.mark
    assert response.request.post_data == client.mark
    assert response.headers["content-type"] == "application/json"
    assert [request.url for request in ended] == [client.url("api/x")]
    assert (await response.request.sizes())["responseBodySize"] > 0


async def a_failed_request_is_reported(client: Client) -> None:
    page = await client.page("empty")
    await page.route("**/api/*", lambda route: route.abort("connectionreset"))
    async with page.expect_event("requestfailed") as waiting:
        await page.evaluate("fetch('api/x').catch(() => {})")
    assert (await waiting.value).failure == "net::ERR_CONNECTION_RESET"


async def extra_headers_go_with_every_request(client: Client) -> None:
    context = await client.new_context(extra_http_headers={"x-extra": client.mark})
    page = await client.page("empty", context)
    assert (await _ask(page, "api/x"))["headers"]["x-extra"] == client.mark


async def requests_outside_of_pages_share_the_cookies(client: Client) -> None:
    context = await client.new_context()
    await context.add_cookies([{"name": "lent", "value": client.mark, "url": client.url("", "127.0.0.1")}])
    response = await context.request.get(client.url("api/x", "127.0.0.1"))
    assert (await response.json())["headers"]["cookie"] == f"lent={client.mark}"


async def credentials_open_what_is_private(client: Client) -> None:
    context = await client.new_context(http_credentials=LOGIN)
    assert await (await client.page("private", context)).title() == f"{client.mark} private"
    page = await (await client.new_context()).new_page()
    response = await page.goto(client.url("private"))
    assert response is not None
    assert response.status == 401


async def a_context_goes_offline_and_back(client: Client) -> None:
    context = await client.new_context()
    page = await client.page("empty", context)
    await context.set_offline(True)
    assert await page.evaluate("navigator.onLine") is False
    with pytest.raises(Error, match="ERR_INTERNET_DISCONNECTED"):
        await page.goto(client.url("form"))
    await context.set_offline(False)
    await page.goto(client.url("form"))


async def websocket_frames_are_reported(client: Client) -> None:
    page = await client.blank_page()
    async with page.expect_websocket() as waiting:
        await page.goto(client.url("socket"))
    socket = await waiting.value
    assert socket.url.endswith(f"/{client.mark}/echo")
    assert await page.evaluate("said") == f"hello {client.mark}"
    async with socket.expect_event("close"):
        await page.evaluate("socket.close()")


async def a_websocket_is_answered_by_the_client(client: Client) -> None:
    page = await client.blank_page()

    def serve(socket: WebSocketRoute) -> None:
        socket.on_message(lambda message: socket.send(f"{message} from {client.mark}"))

    await page.route_web_socket("**/echo", serve)
    await page.goto(client.url("socket"))
    assert await page.evaluate("said") == f"hello from {client.mark}"


async def a_recording_holds_the_traffic_and_can_be_played(client: Client) -> None:
    har = client.files / "traffic.har"
    context = await client.new_context(record_har_path=har, record_har_content="embed")
    page = await client.page("empty", context)
    await _ask(page, "api/x")
    await context.close()
    urls = [entry["request"]["url"] for entry in json.loads(har.read_text())["log"]["entries"]]
    assert urls == [client.url("empty"), client.url("api/x")]

    replayed = await client.new_context(offline=True)
    await replayed.route_from_har(har)
    page = await client.page("empty", replayed)
    assert (await _ask(page, "api/x"))["who"] == client.mark


@repeating
async def a_body_is_read_after_the_page_moved_on(client: Client) -> None:
    page = await client.blank_page()
    response = await page.goto(client.url("api/x"))
    assert response is not None
    assert json.loads(await response.body())["who"] == client.mark
    assert await response.server_addr() is not None
