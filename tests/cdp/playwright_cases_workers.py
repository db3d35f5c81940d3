"""Playwright cases: dedicated, shared and service workers."""

from __future__ import annotations

from .client import Client, repeating

# Where service workers are allowed without encryption.
SECURE = "localhost"


async def a_worker_is_reported_and_scripted(client: Client) -> None:
    page = await client.blank_page()
    async with page.expect_worker() as waiting:
        await page.goto(client.url("worker"))
    worker = await waiting.value
    assert worker.url == client.url("worker.js")
    assert await worker.evaluate("self.constructor.name") == "DedicatedWorkerGlobalScope"
    assert await page.evaluate("heard") == "hello from DedicatedWorkerGlobalScope"
    async with worker.expect_event("close"):
        await page.evaluate("worker.terminate()")
    assert page.workers == []


@repeating
async def the_console_of_a_worker_is_heard(client: Client) -> None:
    page = await client.blank_page()
    async with page.expect_console_message(lambda message: "worker of" in message.text) as waiting:
        await page.goto(client.url("worker"))
    assert (await waiting.value).text == f"worker of {client.mark}"


async def a_shared_worker_serves_two_pages_of_one_context(client: Client) -> None:
    first = await client.page("shared")
    assert await first.evaluate("heard") == 1
    second = await client.page("shared")
    assert await second.evaluate("heard") == 2


async def a_shared_worker_is_not_shared_between_contexts(client: Client) -> None:
    for _ in range(2):
        page = await client.page("shared", await client.new_context())
        assert await page.evaluate("heard") == 1


async def a_service_worker_is_reported_and_scripted(client: Client) -> None:
    context = await client.new_context()
    page = await context.new_page()
    async with context.expect_event("serviceworker") as waiting:
        await page.goto(client.url("service", SECURE))
    worker = await waiting.value
    assert worker.url == client.url("service.js", SECURE)
    assert await worker.evaluate("self.registration.scope") == client.url("", SECURE)
    assert context.service_workers == [worker]


async def a_service_worker_answers_for_the_network(client: Client) -> None:
    page = await client.page("service", host=SECURE)
    await page.evaluate("controlled")
    text = await page.evaluate("fetch('from-worker').then(response => response.text())")
    assert text == f"served by the worker of {client.mark}"


async def a_service_worker_can_be_blocked(client: Client) -> None:
    context = await client.new_context(service_workers="block")
    page = await client.page("service", context, SECURE)
    assert await page.evaluate("Promise.race([ready.then(() => 'ready'), Promise.resolve('blocked')])") == "blocked"
    assert context.service_workers == []


@repeating
async def a_service_worker_outlives_the_page_that_made_it(client: Client) -> None:
    context = await client.new_context()
    page = await client.page("service", context, SECURE)
    await page.evaluate("controlled")
    await page.close()
    page = await client.page("empty", context, SECURE)
    assert await page.evaluate("fetch('from-worker').then(response => response.text())") == (
        f"served by the worker of {client.mark}"
    )
