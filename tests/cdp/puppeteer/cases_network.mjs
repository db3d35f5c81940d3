// Puppeteer cases: requests seen, changed, answered and refused; passwords; WebSockets; being offline.

import assert from 'node:assert/strict'

// Not a case: how the page asks the site for something.
export const ask = (page, name, options) =>
  page.evaluate((name, options) => fetch(name, options).then(response => response.json()), name, options ?? {})

// Not a case: a page whose requests for that name are handled.
export const intercepted = async (client, name, handle) => {
  const page = await client.page('empty')
  await page.setRequestInterception(true)
  page.on('request', request => request.url() === client.url(name) ? handle(request) : request.continue())
  return page
}

export async function anAbortedRequestFailsInThePage (client) {
  const page = await intercepted(client, 'api/x', request => request.abort('connectionreset'))
  const failed = new Promise(resolve => page.once('requestfailed', resolve))
  await assert.rejects(ask(page, 'api/x'), /Failed to fetch/)
  assert.equal((await failed).failure().errorText, 'net::ERR_CONNECTION_RESET')
  page.removeAllListeners('request')
  await page.setRequestInterception(false)
  assert.equal((await ask(page, 'api/x')).name, 'api/x')
}

export async function interceptionReachesFramesOfOtherProcesses (client) {
  const body = '<h1>made up</h1>'
  const page = await client.page('empty')
  await page.setRequestInterception(true)
  page.on('request', request => request.url().includes('/inner')
    ? request.respond({ contentType: 'text/html', body })
    : request.continue())
  await page.goto(client.url('frames'))
  const texts = await Promise.all(page.frames().slice(1).map(frame => frame.$eval('h1', h1 => h1.textContent)))
  assert.deepEqual(texts, ['made up', 'made up'])
}

export async function requestsOfAPageEndIdle (client) {
  const page = await client.blankPage()
  await page.goto(client.url('frames'), { waitUntil: 'networkidle0' })
  const waiting = page.waitForRequest(client.url('api/y'))
  await Promise.all([waiting, ask(page, 'api/y')])
  await page.waitForNetworkIdle({ idleTime: 50 })
}

export async function extraHeadersAndAgentGoWithEveryRequest (client) {
  const page = await client.page('empty')
  await page.setExtraHTTPHeaders({ 'x-extra': client.mark })
  await page.setUserAgent(`agent of ${client.mark}`)
  const got = await ask(page, 'api/x')
  assert.deepEqual([got.headers['x-extra'], got.headers['user-agent']], [client.mark, `agent of ${client.mark}`])
}

export async function aPasswordOpensWhatIsPrivate (client) {
  const page = await client.blankPage()
  await page.authenticate({ username: 'ada', password: 'lovelace' })
  await page.goto(client.url('private'))
  assert.equal(await page.title(), `${client.mark} private`)
}

export async function websocketFramesAreHeard (client) {
  const page = await client.blankPage()
  const session = await page.createCDPSession()
  await session.send('Network.enable')
  const received = new Promise(resolve => session.once('Network.webSocketFrameReceived', resolve))
  await page.goto(client.url('socket'))
  assert.equal((await received).response.payloadData, `hello ${client.mark}`)
}

export async function theCacheIsSwitchedOff (client) {
  const page = await client.page('empty')
  await page.setCacheEnabled(false)
  const response = await page.goto(client.url('empty'))
  assert.equal(response.request().headers()['cache-control'], 'no-cache')
}
