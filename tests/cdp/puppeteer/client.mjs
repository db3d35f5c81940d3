// One Puppeteer client as a case gets it, and what it saw of other clients: the twin of client.py.

import puppeteer from 'puppeteer-core'

const MARK = /~(\w+)~/g

export class Client {
  constructor (browser, order, first) {
    this.browser = browser
    this.who = order.who
    this.mark = `~${order.who}~`
    // A directory of its own.
    this.files = order.files
    this.port = order.port
    // As puppeteer.connect takes it.
    this.address = order.address
    // The page that is there from the start, as long as it is to be used before a new one is opened.
    this.first = first
    // What it was told about targets without having asked.
    this.heard = []
    for (const kind of ['targetcreated', 'targetchanged', 'targetdestroyed']) {
      browser.on(kind, target => this.heard.push(target.url()))
    }
  }

  url (name, host = 'a.test') {
    return `http://${host}:${this.port}/${this.mark}/${name}`
  }

  // A page in the first context, or in another, which the client has not used yet.
  async blankPage (context = this.browser.defaultBrowserContext()) {
    if (context === this.browser.defaultBrowserContext() && this.first.length) return this.first.pop()
    return context.newPage()
  }

  // Such a page at that address.
  async page (name, context = this.browser.defaultBrowserContext(), host = 'a.test') {
    const page = await this.blankPage(context)
    await page.goto(this.url(name, host))
    return page
  }

  connectAgain () {
    return puppeteer.connect(this.address)
  }

  // Leave nothing of one case to the next: no page that was used, no further context, no cookie.
  async tidyUp () {
    const first = this.browser.defaultBrowserContext()
    for (const context of this.browser.browserContexts()) if (context !== first) await context.close()
    for (const page of await first.pages()) if (!this.first.includes(page)) await page.close()
    await first.deleteCookie(...await first.cookies())
  }

  // Marks of others, in anything that it can see.
  async strangers () {
    const seen = [...this.heard]
    const strange = []
    if (this.browser.connected) {
      for (const target of this.browser.targets()) seen.push(target.url())
      for (const page of await this.browser.pages()) seen.push(page.url())
      for (const context of this.browser.browserContexts()) seen.push(JSON.stringify(await context.cookies()))
      try {
        const session = await this.browser.target().createCDPSession()
        seen.push(JSON.stringify(await session.send('Target.getTargets')))
        await session.detach()
      } catch (error) {
        // It was somebody else's, who has left meanwhile.
        if (!/No target with given id/.test(error.message)) throw error
        strange.push('a target that is gone')
      }
    }
    const marks = [...seen.join('\n').matchAll(MARK)].map(match => match[1])
    return [...new Set(marks), ...strange].filter(mark => mark !== this.who)
  }
}

export async function connect (order) {
  const browser = await puppeteer.connect(order.address)
  return new Client(browser, order, order.takesFirst ? (await browser.pages()).slice(0, 1) : [])
}
