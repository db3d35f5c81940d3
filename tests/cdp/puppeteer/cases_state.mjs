// Puppeteer cases: cookies, storage, permissions, emulation, and what a page gives out.

import assert from 'node:assert/strict'

// Width and height, from the header of the picture.
function size (png) {
  const view = new DataView(png.buffer, png.byteOffset)
  return [view.getUint32(16), view.getUint32(20)]
}

export async function cookiesAreSetReadAndDeleted (client) {
  const context = client.browser.defaultBrowserContext()
  await context.setCookie({ name: 'plain', value: client.mark, domain: 'b.test' })
  await client.page('empty')
  const names = async () => (await context.cookies()).map(cookie => cookie.name).sort()
  assert.deepEqual(await names(), ['plain', 'who'])
  await context.deleteMatchingCookies({ name: 'plain', domain: 'b.test' })
  assert.deepEqual(await names(), ['who'])
}

export async function theFirstContextStartsEmpty (client) {
  const context = client.browser.defaultBrowserContext()
  assert.deepEqual(await context.cookies(), [])
  const page = await client.page('api/x', context, 'localhost')
  assert.deepEqual(await page.evaluate(() => [document.cookie, localStorage.length]), ['', 0])
}
theFirstContextStartsEmpty.isAlone = true

export async function permissionsAreOverridden (client) {
  const context = client.browser.defaultBrowserContext()
  const page = await client.page('empty', context, 'localhost')
  const state = () => page.evaluate(() =>
    navigator.permissions.query({ name: 'geolocation' }).then(found => found.state))
  const before = await state()
  await context.overridePermissions(new URL(page.url()).origin, ['geolocation'])
  assert.equal(await state(), 'granted')
  await context.clearPermissionOverrides()
  assert.equal(await state(), before)
}

export async function picturesHaveTheSizeThatWasAskedFor (client) {
  const page = await client.page('tall')
  await page.setViewport({ width: 300, height: 200 })
  assert.deepEqual(size(await page.screenshot()), [300, 200])
  assert.deepEqual(size(await page.screenshot({ fullPage: true })), [300, 3040])
  assert.deepEqual(size(await (await page.$('#box')).screenshot()), [60, 40])
  assert.deepEqual(size(await page.screenshot({ clip: { x: 0, y: 0, width: 10, height: 20 } })), [10, 20])
}

export async function dialogsAreAnswered (client) {
  const page = await client.page('dialogs')
  const seen = []
  page.on('dialog', async dialog => {
    seen.push([dialog.type(), dialog.message(), dialog.defaultValue()])
    await dialog.accept(dialog.type() === 'prompt' ? 'somebody' : undefined)
  })
  const answers = await page.evaluate(() => [window.ask.confirm(), window.ask.prompt()])
  assert.deepEqual(answers, [true, 'somebody'])
  assert.deepEqual(seen, [['confirm', client.mark, ''], ['prompt', client.mark, 'nobody']])
}

export async function aPageAsksBeforeItIsLeft (client) {
  const page = await client.page('stays')
  await page.click('#touch')
  const asked = new Promise(resolve => page.once('dialog', resolve))
  const closed = new Promise(resolve => page.once('close', resolve))
  const closing = page.close({ runBeforeUnload: true })
  const dialog = await asked
  assert.equal(dialog.type(), 'beforeunload')
  await dialog.accept()
  await Promise.all([closing, closed])
}

export async function aDownloadIsReported (client) {
  const page = await client.page('download')
  const session = await client.browser.target().createCDPSession()
  const begun = new Promise(resolve => session.once('Browser.downloadWillBegin', resolve))
  const ended = new Promise(resolve => session.on('Browser.downloadProgress', event => {
    if (event.state !== 'inProgress') resolve(event.state)
  }))
  await session.send('Browser.setDownloadBehavior', {
    behavior: 'allowAndName', downloadPath: client.files, eventsEnabled: true
  })
  await page.click('#get')
  assert.equal((await begun).suggestedFilename, `${client.who}.txt`)
  assert.equal(await ended, 'completed')
}

export async function metricsAndCoverageAreMeasured (client) {
  const page = await client.page('empty')
  assert.ok((await page.metrics()).JSHeapUsedSize > 0)
  await page.coverage.startJSCoverage()
  await page.goto(client.url('form'))
  const covered = await page.coverage.stopJSCoverage()
  assert.ok(covered.some(script => script.url === client.url('form')))
}
