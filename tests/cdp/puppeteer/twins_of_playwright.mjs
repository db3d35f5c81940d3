// Puppeteer cases that say what a case of Playwright says by nearly the same commands: `make soak` runs them.

import assert from 'node:assert/strict'

import { ask, intercepted } from './cases_network.mjs'

const BIG_CHARACTERS = 20_000_000

export async function aFormIsFilledAndSent (client) {
  const page = await client.page('form')
  await page.type('#name', 'ada')
  await page.select('select', 'green')
  await page.click('[name=agree]')
  await page.click('button')
  const sent = JSON.parse(await page.$eval('#sent', output => output.textContent))
  assert.deepEqual(sent, [['name', 'ada'], ['colour', 'green'], ['agree', 'yes']])
}

export async function keysArriveAsTheyWerePressed (client) {
  const page = await client.page('input')
  await page.focus('#keys')
  await page.keyboard.type('aB')
  await page.keyboard.down('Control')
  await page.keyboard.press('a')
  await page.keyboard.up('Control')
  await page.keyboard.sendCharacter('é')
  assert.deepEqual(await page.evaluate(() => window.log), ['a', 'B', 'ctrl+Control', 'ctrl+a'])
}

export async function theMouseClicksMovesAndScrolls (client) {
  const page = await client.page('input')
  await page.mouse.click(50, 50)
  await page.mouse.click(50, 50, { button: 'right' })
  await page.hover('#pad')
  assert.ok(await page.evaluate(() => document.querySelector('#pad').matches(':hover')))
  const log = await page.evaluate(() => window.log)
  assert.deepEqual(log.slice(0, 4), ['mousedown', 'mouseup', 'click', 'mousedown:2'])
  await page.goto(client.url('tall'))
  await page.mouse.wheel({ deltaY: 500 })
  await page.waitForFunction(() => window.scrollY === 500)
}

export async function aTapIsATouch (client) {
  const page = await client.page('input')
  await page.setViewport({ width: 400, height: 300, hasTouch: true })
  await page.goto(client.url('input'))
  await page.tap('#pad')
  await page.waitForFunction(() => window.log.includes('click'))
  assert.ok((await page.evaluate(() => window.log)).includes('touchstart'))
}

export async function waitingEndsWhenThePageChanges (client) {
  const page = await client.page('empty')
  await page.evaluate(() => { setTimeout(() => { document.body.innerHTML = '<p id=late>late</p>' }, 20) })
  assert.equal(await (await page.waitForSelector('#late')).evaluate(found => found.textContent), 'late')
  await page.evaluate(() => { setTimeout(() => document.querySelector('#late').remove(), 20) })
  await page.waitForSelector('#late', { hidden: true })
  await page.evaluate(() => { setTimeout(() => { window.done = 7 }, 20) })
  assert.equal(await (await page.waitForFunction(() => window.done)).jsonValue(), 7)
}

export async function valuesOfEveryKindPassBothWays (client) {
  const page = await client.page('empty')
  const value = { n: 1.5, none: null, list: [true, 'é🐑', { deep: [] }], who: client.mark }
  assert.deepEqual(await page.evaluate(value => value, value), value)
}

export async function handlesStayInThePage (client) {
  const page = await client.page('form')
  const handle = await page.evaluateHandle(() => document.querySelectorAll('li'))
  assert.equal(await handle.evaluate(items => items.length), 3)
  await handle.dispose()
  assert.equal(await (await page.$('li')).evaluate(item => item.textContent), 'one')
}

export async function anExceptionComesBackWithItsText (client) {
  const page = await client.page('empty')
  await assert.rejects(page.evaluate(mark => { throw new Error(`thrown by ${mark}`) }, client.mark), /thrown by ~/)
}

export async function scriptsAndStylesAreAdded (client) {
  const page = await client.page('tall')
  await page.addScriptTag({ content: 'window.added = 5' })
  await page.addStyleTag({ content: '#box { width: 77px !important }' })
  assert.deepEqual(await page.evaluate(() => [window.added, document.querySelector('#box').offsetWidth]), [5, 77])
}

export async function manyCallsAtOnceEachGetTheirOwnAnswer (client) {
  const page = await client.page('empty')
  const numbers = [...Array(200).keys()]
  const answers = await Promise.all(numbers.map(number => page.evaluate(number => number * 2, number)))
  assert.deepEqual(answers, numbers.map(number => number * 2))
}

export async function contentIsSetAndRead (client) {
  const page = await client.blankPage()
  await page.setContent('<p>set</p>')
  assert.match(await page.content(), /<p>set<\/p>/)
}

export async function aChangedRequestReachesTheSiteChanged (client) {
  const page = await intercepted(client, 'api/x', request => {
    const headers = { ...request.headers(), 'x-added': client.mark }
    request.continue({ method: 'POST', postData: 'changed', headers })
  })
  const got = await ask(page, 'api/x')
  assert.deepEqual([got.method, got.headers['x-added'], got.body], ['POST', client.mark, 'changed'])
}

export async function responsesAreReportedWithTheirBodies (client) {
  const page = await client.page('empty')
  const waiting = page.waitForResponse(response => response.url() === client.url('api/x'))
  await ask(page, 'api/x', { method: 'POST', body: client.mark })
  const response = await waiting
  assert.equal((await response.json()).body, client.mark)
  assert.equal(response.request().postData(), client.mark)
  assert.equal(response.headers()['content-type'], 'application/json')
}

export async function aPageGoesOfflineAndBack (client) {
  const page = await client.page('empty')
  await page.setOfflineMode(true)
  await assert.rejects(page.goto(client.url('form')), /ERR_INTERNET_DISCONNECTED/)
  await page.setOfflineMode(false)
  await page.goto(client.url('form'))
}

export async function aSecurityPolicyIsBypassedWhenAsked (client) {
  const page = await client.blankPage()
  await page.setBypassCSP(true)
  await page.goto(client.url('strict'))
  await page.addScriptTag({ content: 'window.added = true' })
  assert.equal(await page.evaluate(() => window.added), true)
}

export async function anAnsweredRequestNeverReachesTheSite (client) {
  const body = `<title>${client.mark} made up</title>`
  const page = await intercepted(client, 'form', request => request.respond({ status: 201, contentType: 'text/html', body }))
  const response = await page.goto(client.url('form'))
  assert.deepEqual([response.status(), await page.title()], [201, `${client.mark} made up`])
}

export async function historyGoesBackAndForwardAndReloads (client) {
  const page = await client.page('links')
  await Promise.all([page.waitForNavigation(), page.click('#next')])
  await page.goBack()
  assert.equal(page.url(), client.url('links'))
  await page.goForward()
  assert.equal(page.url(), client.url('next'))
  await page.evaluate(() => { window.kept = true })
  await page.reload()
  assert.equal(await page.evaluate(() => window.kept), undefined)
}

export async function theBrowserSaysWhatItIs (client) {
  assert.match(await client.browser.version(), /Chrom/)
  assert.match(await client.browser.userAgent(), /Mozilla/)
}

export async function pagesTakeTurnsInFront (client) {
  const [first, second] = [await client.page('empty'), await client.page('empty')]
  for (const page of [first, second, first]) {
    await page.bringToFront()
    assert.equal(await page.evaluate(() => document.visibilityState), 'visible')
  }
}

export async function gotoTellsTheStatusOrWhyItFailed (client) {
  const page = await client.blankPage()
  const response = await page.goto(client.url('redirect'))
  assert.deepEqual([response.status(), page.url()], [200, client.url('empty')])
  assert.deepEqual(response.request().redirectChain().map(request => request.url()), [client.url('redirect')])
  assert.equal((await page.goto(client.url('missing'))).status(), 404)
  await assert.rejects(page.goto('http://nowhere.invalid/'), /ERR_NAME_NOT_RESOLVED/)
  await assert.rejects(page.goto(client.url('never'), { timeout: 100 }), /timeout/)
}

export async function aRawSessionOfAPageCallsAndHears (client) {
  const page = await client.page('empty')
  const session = await page.createCDPSession()
  const heard = new Promise(resolve => session.once('Network.requestWillBeSent', resolve))
  await session.send('Network.enable')
  await page.evaluate(() => fetch('api/x').then(response => response.text()))
  assert.equal((await heard).documentURL, client.url('empty'))
  await session.detach()
  await assert.rejects(session.send('Runtime.evaluate', { expression: '1' }))
}

export async function aPlaceIsPretended (client) {
  const context = await client.browser.createBrowserContext()
  const page = await client.page('empty', context, 'localhost')
  await context.overridePermissions(new URL(page.url()).origin, ['geolocation'])
  await page.setGeolocation({ latitude: 12, longitude: 34 })
  const latitude = await page.evaluate(() => new Promise((resolve, reject) =>
    navigator.geolocation.getCurrentPosition(position => resolve(position.coords.latitude), reject)))
  assert.equal(latitude, 12)
}

export async function aDeviceIsEmulated (client) {
  const page = await client.page('empty')
  await page.setViewport({ width: 400, height: 300, deviceScaleFactor: 2, hasTouch: true, isMobile: true })
  await page.goto(client.url('empty'))
  assert.deepEqual(await page.evaluate(() => [screen.width, devicePixelRatio]), [400, 2])
  await page.emulateTimezone('Pacific/Auckland')
  assert.equal(await page.evaluate(() => Intl.DateTimeFormat().resolvedOptions().timeZone), 'Pacific/Auckland')
}

export async function mediaAreEmulated (client) {
  const page = await client.page('media')
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }])
  assert.ok(await page.evaluate(() => window.media('(prefers-color-scheme: dark)')))
  await page.emulateMediaType('print')
  assert.ok(await page.evaluate(() => window.media('print')))
}

export async function scriptsCanBeSwitchedOff (client) {
  const page = await client.blankPage()
  await page.setJavaScriptEnabled(false)
  await page.goto(client.url('empty'))
  assert.equal(await page.evaluate(() => typeof window.first), 'undefined')
}

export async function aPageBecomesADocument (client) {
  const page = await client.page('tall')
  const pdf = await page.pdf({ format: 'A4' })
  assert.equal(Buffer.from(pdf.slice(0, 5)).toString(), '%PDF-')
}

export async function consoleMessagesAndErrorsAreHeard (client) {
  const page = await client.page('empty')
  const said = new Promise(resolve => page.once('console', resolve))
  await page.evaluate(mark => console.warn(mark, { n: 1 }), client.mark)
  const message = await said
  assert.deepEqual([message.type(), await message.args()[1].jsonValue()], ['warn', { n: 1 }])
  const broke = new Promise(resolve => page.once('pageerror', resolve))
  await page.goto(client.url('broken'))
  assert.equal((await broke).message, `broken of ${client.mark}`)
}

export async function aBigResultArrivesWhole (client) {
  const page = await client.page('empty')
  const text = await page.evaluate(length => 'x'.repeat(length), BIG_CHARACTERS)
  assert.equal(text.length, BIG_CHARACTERS)
}

export async function theAccessibleTreeIsTold (client) {
  const page = await client.page('form')
  const tree = JSON.stringify(await page.accessibility.snapshot())
  assert.match(tree, /"name":"Send"/)
}

export async function localStorageStaysWithItsContext (client) {
  const page = await client.page('empty')
  await page.evaluate(mark => localStorage.setItem('who', mark), client.mark)
  const other = await client.page('empty', await client.browser.createBrowserContext())
  assert.equal(await other.evaluate(() => localStorage.getItem('who')), null)
  const again = await client.page('empty')
  assert.equal(await again.evaluate(() => localStorage.getItem('who')), client.mark)
}

export async function cookiesOfThePageComeBackToTheSite (client) {
  const page = await client.page('empty')
  const got = await page.evaluate(() => fetch('api/x').then(response => response.json()))
  assert.equal(got.headers.cookie, `who=${client.mark}`)
}
