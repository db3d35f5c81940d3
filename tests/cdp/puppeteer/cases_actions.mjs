// Puppeteer cases: keyboard, mouse, touch, forms, files, finding and waiting, scripts and bindings.

import assert from 'node:assert/strict'

export async function aFormIsFilledAndSent (client) {
  const page = await client.page('form')
  await page.type('#name', 'ada')
  await page.select('select', 'green')
  await page.click('[name=agree]')
  await page.click('button')
  const sent = JSON.parse(await page.$eval('#sent', output => output.textContent))
  assert.deepEqual(sent, [['name', 'ada'], ['colour', 'green'], ['agree', 'yes']])
}

export async function thingsAreFoundInEveryWay (client) {
  const page = await client.page('form')
  assert.equal((await page.$$('li')).length, 3)
  assert.deepEqual(await page.$$eval('li', items => items.map(item => item.textContent)), ['one', 'two', 'three'])
  assert.ok(await page.$('::-p-text(three)'))
  assert.ok(await page.$('::-p-xpath(//li[2])'))
  assert.ok(await page.$('::-p-aria([name="Send"][role="button"])'))
  assert.equal(await page.$eval('>>> #deep', bold => bold.textContent), 'in the shadow')
  await page.locator('#name').fill(client.mark)
  assert.equal(await page.$eval('#name', input => input.value), client.mark)
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

export async function aThingIsDraggedToAPlace (client) {
  const page = await client.page('drag')
  await (await page.$('#thing')).drag(await page.$('#place'))
  await (await page.$('#place')).drop(await page.$('#thing'))
  await page.waitForFunction(who => document.querySelector('#place').textContent === `got thing of ${who}`, {}, client.who)
}

export async function aFileChooserIsCancelled (client) {
  const page = await client.page('form')
  const [chooser] = await Promise.all([page.waitForFileChooser(), page.click('#file')])
  assert.ok(chooser.isMultiple())
  await chooser.cancel()
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

export async function anExposedFunctionIsCalledByPageAndFrames (client) {
  const page = await client.blankPage()
  const calls = []
  await page.exposeFunction('tell', text => { calls.push(text); return `heard ${text}` })
  await page.goto(client.url('frames'))
  for (const frame of page.frames()) assert.equal(await frame.evaluate(() => window.tell('x')), 'heard x')
  assert.equal(calls.length, 3)
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
