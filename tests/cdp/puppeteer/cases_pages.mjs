// Puppeteer cases: pages, popups, contexts, frames, workers, navigation, and the connection itself.

import assert from 'node:assert/strict'

const loaded = page => page.waitForFunction(() => document.readyState === 'complete')

export async function aPageHasTheTitleOfWhatItLoads (client) {
  const page = await client.page('empty')
  assert.equal(await page.title(), `${client.mark} empty`)
  assert.ok((await client.browser.pages()).includes(page))
}

export async function manyPagesLiveSideBySide (client) {
  const numbers = [...Array(8).keys()]
  const pages = await Promise.all(numbers.map(number => client.page(`empty?${number}`)))
  const found = await Promise.all(pages.map(page => page.evaluate(() => location.search)))
  assert.deepEqual(found, numbers.map(number => `?${number}`))
  await Promise.all(pages.map(page => page.close()))
  const left = await client.browser.pages()
  assert.ok(!pages.some(page => left.includes(page)))
}

export async function contextsOfOneClientShareNoCookies (client) {
  const [first, second] = [await client.browser.createBrowserContext(), await client.browser.createBrowserContext()]
  await client.page('empty', first)
  assert.deepEqual((await first.cookies()).map(cookie => cookie.value), [client.mark])
  assert.deepEqual(await second.cookies(), [])
  assert.equal(client.browser.browserContexts().length, 3)
  await first.close()
  assert.equal(client.browser.browserContexts().length, 2)
}

export async function aPopupIsReportedWithItsOpener (client) {
  const page = await client.page('opener')
  const opened = new Promise(resolve => page.once('popup', resolve))
  await page.click('#open')
  const popup = await opened
  await loaded(popup)
  assert.equal(await popup.title(), `${client.mark} opened`)
  assert.equal(popup.target().opener(), page.target())
}

export async function aPopupOfAnotherSiteIsReported (client) {
  const page = await client.page('opener')
  const opened = new Promise(resolve => page.once('popup', resolve))
  await page.click('#far')
  const popup = await opened
  await popup.waitForFunction(() => location.hostname === 'b.test')
  assert.equal(popup.url(), client.url('opened', 'b.test'))
}

export async function aTargetIsWaitedFor (client) {
  const page = await client.page('opener')
  const waiting = client.browser.waitForTarget(target => target.url() === client.url('opened'))
  await page.click('#noopener')
  const opened = await (await waiting).page()
  await loaded(opened)
  assert.equal(await opened.title(), `${client.mark} opened`)
}

export async function aWindowThatClosesItselfIsReportedClosed (client) {
  const page = await client.page('opener')
  const opened = new Promise(resolve => page.once('popup', resolve))
  await page.click('#open')
  const popup = await opened
  await loaded(popup)
  const closed = new Promise(resolve => popup.once('close', resolve))
  await popup.evaluate(() => { setTimeout(() => window.close()) })
  await closed
  assert.ok(popup.isClosed())
}

export async function scriptsForNewDocumentsRunBeforeThePage (client) {
  const page = await client.blankPage()
  const { identifier } = await page.evaluateOnNewDocument(mark => { window.planted = mark }, client.mark)
  await page.goto(client.url('frames'))
  for (const frame of page.frames()) assert.equal(await frame.evaluate(() => window.first), client.mark)
  await page.removeScriptToEvaluateOnNewDocument(identifier)
  await page.reload()
  assert.equal(await page.evaluate(() => window.first), 'nothing')
}

export async function framesOfOtherProcessesAreScripted (client) {
  const page = await client.page('frames')
  const hosts = await Promise.all(page.frames().map(frame => frame.evaluate(() => location.hostname)))
  assert.deepEqual(hosts.sort(), ['a.test', 'a.test', 'b.test'])
  const far = await page.waitForFrame(frame => frame.url() === client.url('inner', 'b.test'))
  await far.click('button')
  assert.equal(await far.$eval('button', button => button.textContent), 'pressed')
}

export async function aRemovedFrameIsReportedDetached (client) {
  const page = await client.page('frames')
  const far = page.frames().find(frame => frame.url().includes('b.test'))
  const gone = new Promise(resolve => page.once('framedetached', resolve))
  await page.evaluate(() => document.querySelector('[name=far]').remove())
  assert.equal(await gone, far)
  assert.ok(far.detached)
}

export async function aFrameMovesToAnotherProcess (client) {
  const page = await client.page('frames')
  for (const host of ['c.test', 'd.test', 'a.test']) {
    const url = client.url('inner?moved', host)
    await page.$eval('[name=near]', (frame, url) => { frame.src = url }, url)
    const frame = await page.waitForFrame(frame => frame.url() === url)
    await frame.waitForFunction(host => location.hostname === host, {}, host)
  }
}

export async function aWorkerIsReportedAndScripted (client) {
  const page = await client.blankPage()
  const created = new Promise(resolve => page.once('workercreated', resolve))
  await page.goto(client.url('worker'))
  const worker = await created
  assert.equal(worker.url(), client.url('worker.js'))
  assert.equal(await worker.evaluate(() => self.constructor.name), 'DedicatedWorkerGlobalScope')
  const destroyed = new Promise(resolve => page.once('workerdestroyed', resolve))
  await page.evaluate(() => window.worker.terminate())
  await destroyed
}

export async function aServiceWorkerIsATarget (client) {
  const context = await client.browser.createBrowserContext()
  const waiting = context.waitForTarget(target => target.type() === 'service_worker')
  const page = await client.page('service', context, 'localhost')
  const worker = await (await waiting).worker()
  assert.equal(await worker.evaluate(() => self.registration.scope), client.url('', 'localhost'))
  await page.evaluate(() => window.controlled)
  const text = await page.evaluate(() => fetch('from-worker').then(response => response.text()))
  assert.equal(text, `served by the worker of ${client.mark}`)
}

export async function aSharedWorkerIsATarget (client) {
  const context = await client.browser.createBrowserContext()
  const waiting = context.waitForTarget(target => target.type() === 'shared_worker')
  const page = await client.page('shared', context)
  assert.equal((await waiting).url(), client.url('shared.js'))
  assert.equal(await page.evaluate(() => window.heard), 1)
}

export async function closingTheBrowserEndsThisClientOnly (client) {
  const gone = new Promise(resolve => client.browser.once('disconnected', resolve))
  const page = await client.page('empty')
  // A bare Chromium would be gone, but so would nobody else: it has one to itself.
  await client.browser.disconnect()
  await gone
  await assert.rejects(page.title())
  const again = await client.connectAgain()
  assert.ok((await again.newPage()).url() === 'about:blank')
  await again.close()
}
closingTheBrowserEndsThisClientOnly.isAlone = true
