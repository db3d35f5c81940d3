// Puppeteer cases: keyboard, mouse, touch, forms, files, finding and waiting, scripts and bindings.

import assert from 'node:assert/strict'

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

export async function anExposedFunctionIsCalledByPageAndFrames (client) {
  const page = await client.blankPage()
  const calls = []
  await page.exposeFunction('tell', text => { calls.push(text); return `heard ${text}` })
  await page.goto(client.url('frames'))
  for (const frame of page.frames()) assert.equal(await frame.evaluate(() => window.tell('x')), 'heard x')
  assert.equal(calls.length, 3)
}
