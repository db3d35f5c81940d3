"""Playwright cases: cookies, storage, permissions and the state file."""

from __future__ import annotations

import json

from .client import Client, alone, repeating

STORE = "localStorage.setItem('who', document.title); localStorage.getItem('who')"
INDEXED = """new Promise((done, fail) => {
  const opening = indexedDB.open('db', 1)
  opening.onupgradeneeded = () => opening.result.createObjectStore('things')
  opening.onerror = fail
  opening.onsuccess = () => {
    const change = opening.result.transaction('things', 'readwrite')
    change.objectStore('things').put(document.title, 'who')
    change.oncomplete = () => opening.result.transaction('things').objectStore('things').get('who').onsuccess =
      e => done(e.target.result)
  }
})"""


async def cookies_are_set_read_and_cleared(client: Client) -> None:
    await client.context.add_cookies(
        [
            {"name": "plain", "value": client.mark, "url": client.url("")},
            {"name": "hidden", "value": client.mark, "domain": "b.test", "path": "/", "httpOnly": True},
        ]
    )
    assert {cookie["name"] for cookie in await client.context.cookies(client.url("", "b.test"))} == {"hidden"}
    page = await client.page("empty", host="b.test")
    assert "hidden" not in await page.evaluate("document.cookie")
    await client.context.clear_cookies(name="plain")
    assert {cookie["name"] for cookie in await client.context.cookies()} == {"hidden", "who"}
    await client.context.clear_cookies()
    assert await client.context.cookies() == []


@repeating
async def a_cookie_of_the_site_comes_back_to_it(client: Client) -> None:
    page = await client.page("empty")
    got = json.loads(await page.evaluate("fetch('api/x').then(response => response.text())"))
    assert got["headers"]["cookie"] == f"who={client.mark}"


@alone
async def the_first_context_starts_without_cookies_or_storage(client: Client) -> None:
    assert await client.context.cookies() == []
    page = await client.blank_page()
    await page.route("**/*", lambda route: route.fulfill(content_type="text/html", body="bare"))
    for host in ("a.test", "b.test", "localhost"):
        await page.goto(client.url("bare", host))
        assert await page.evaluate("[document.cookie, localStorage.length]") == ["", 0]


async def local_storage_stays_with_its_context(client: Client) -> None:
    page = await client.page("empty")
    assert await page.evaluate(STORE) == f"{client.mark} empty"
    other = await client.page("empty", await client.new_context())
    assert await other.evaluate("localStorage.getItem('who')") is None
    again = await client.page("empty")
    assert await again.evaluate("localStorage.getItem('who')") == f"{client.mark} empty"


@repeating
async def indexed_databases_work(client: Client) -> None:
    page = await client.page("empty")
    assert await page.evaluate(INDEXED) == f"{client.mark} empty"


async def the_state_of_a_context_moves_to_another(client: Client) -> None:
    context = await client.new_context()
    page = await client.page("empty", context)
    await page.evaluate(STORE)
    file = client.files / "state.json"
    state = await context.storage_state(path=file)
    assert [cookie["value"] for cookie in state["cookies"]] == [client.mark]
    restored = await client.new_context(storage_state=file)
    page = await restored.new_page()
    await page.goto(client.url("empty"))
    assert await page.evaluate("localStorage.getItem('who')") == f"{client.mark} empty"
    assert await page.evaluate("document.cookie") == f"who={client.mark}"


@alone
async def the_state_of_the_first_context_is_its_own(client: Client) -> None:
    page = await client.page("empty")
    await page.evaluate(STORE)
    state = await client.context.storage_state()
    assert [(cookie["name"], cookie["value"]) for cookie in state["cookies"]] == [("who", client.mark)]
    stored = {item["value"] for origin in state["origins"] for item in origin["localStorage"]}
    assert stored == {f"{client.mark} empty"}


async def permissions_are_granted_and_taken_back(client: Client) -> None:
    page = await client.page("empty", host="localhost")
    state = "navigator.permissions.query({name: 'geolocation'}).then(found => found.state)"
    before = await page.evaluate(state)
    await client.context.grant_permissions(["geolocation"], origin=client.url("", "localhost"))
    assert await page.evaluate(state) == "granted"
    await client.context.clear_permissions()
    assert await page.evaluate(state) == before


async def permissions_stay_with_their_context(client: Client) -> None:
    state = "navigator.permissions.query({name: 'geolocation'}).then(found => found.state)"
    granted = await client.new_context(permissions=["geolocation"])
    assert await (await client.page("empty", granted, "localhost")).evaluate(state) == "granted"
    other = await client.page("empty", await client.new_context(), "localhost")
    assert await other.evaluate(state) != "granted"


async def the_clipboard_is_written_and_read(client: Client) -> None:
    context = await client.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = await client.page("empty", context, "localhost")
    write_and_read = f"navigator.clipboard.writeText('{client.mark}').then(() => 'written')"
    assert await page.evaluate(write_and_read) == "written"
