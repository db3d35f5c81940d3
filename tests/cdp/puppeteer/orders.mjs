// What single tests order: no cases, because they need something of the test.

import assert from 'node:assert/strict'

// For test_crowd.py: a page with frames, a popup, and workers, in two contexts; then wait for the others.
export async function everythingIsOpened (client) {
  const page = await client.page('opener')
  const opened = new Promise(resolve => page.once('popup', resolve))
  await page.click('#far')
  await opened
  await client.page('frames', await client.browser.createBrowserContext())
  await client.page('shared')
  await client.page('service', client.browser.defaultBrowserContext(), 'localhost')
  await client.page('gate')
  assert.ok((await client.browser.pages()).length >= 6)
}

// For test_doors.py: the file whose path was given takes the place of the directory.
export async function theFileIsUploaded (client) {
  const page = await client.page('form')
  await (await page.$('#file')).uploadFile(client.files)
  await page.waitForFunction(() => document.querySelector('#sent').textContent === 'mine.txt=of ada')
}
