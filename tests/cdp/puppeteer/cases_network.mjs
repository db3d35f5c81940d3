// Puppeteer cases: requests seen, changed, answered and refused; passwords; WebSockets; being offline.

import assert from 'node:assert/strict'

const ask = (page, name, options) =>
  page.evaluate((name, options) => fetch(name, options).then(response => response.json()), name, options ?? {})

async function intercepted (client, name, handle) {
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

export async function anAnsweredRequestNeverReachesTheSite (client) {
  const body = `<title>${client.mark} made up</title>`
  const page = await intercepted(client, 'form', request => request.respond({ status: 201, contentType: 'text/html', body }))
  const response = await page.goto(client.url('form'))
  assert.deepEqual([response.status(), await page.title()], [201, `${client.mark} made up`])
}

export async function aChangedRequestReachesTheSiteChanged (client) {
  const page = await intercepted(client, 'api/x', request => {
    const headers = { ...request.headers(), 'x-added': client.mark }
    request.continue({ method: 'POST', postData: 'changed', headers })
  })
  const got = await ask(page, 'api/x')
  assert.deepEqual([got.method, got.headers['x-added'], got.body], ['POST', client.mark, 'changed'])
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

export async function responsesAreReportedWithTheirBodies (client) {
  const page = await client.page('empty')
  const waiting = page.waitForResponse(response => response.url() === client.url('api/x'))
  await ask(page, 'api/x', { method: 'POST', body: client.mark })
  const response = await waiting
  assert.equal((await response.json()).body, client.mark)
  assert.equal(response.request().postData(), client.mark)
  assert.equal(response.headers()['content-type'], 'application/json')
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

export async function aPageGoesOfflineAndBack (client) {
  const page = await client.page('empty')
  await page.setOfflineMode(true)
  await assert.rejects(page.goto(client.url('form')), /ERR_INTERNET_DISCONNECTED/)
  await page.setOfflineMode(false)
  await page.goto(client.url('form'))
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

export async function aSecurityPolicyIsBypassedWhenAsked (client) {
  const page = await client.blankPage()
  await page.setBypassCSP(true)
  await page.goto(client.url('strict'))
  await page.addScriptTag({ content: 'window.added = true' })
  assert.equal(await page.evaluate(() => window.added), true)
}
