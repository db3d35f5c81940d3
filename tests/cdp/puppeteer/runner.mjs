// Runs Puppeteer cases: one JSON order per line of standard input, one JSON outcome per line of standard output.
//
// Orders run at once, as many as come. The process ends when its input does and the last case has ended.

import { createInterface } from 'node:readline'

import * as actions from './cases_actions.mjs'
import * as network from './cases_network.mjs'
import * as pages from './cases_pages.mjs'
import * as state from './cases_state.mjs'
import { connect } from './client.mjs'
import * as orders from './orders.mjs'
import * as twins from './twins_of_playwright.mjs'

const cases = { ...actions, ...network, ...orders, ...pages, ...state, ...twins }

// All cases of an order over one connection; those that need one of their own, or come after a failure, over another.
async function run (order) {
  const outcome = { number: order.number, errors: {}, strangers: [] }
  let client
  for (const name of order.cases) {
    try {
      if (cases[name].isAlone) client = await leave(client)
      client ??= await connect(order)
      await cases[name](client)
      outcome.strangers.push(...await client.strangers())
      if (cases[name].isAlone) client = await leave(client)
      else if (name !== order.cases.at(-1)) await client.tidyUp()
    } catch (error) {
      outcome.errors[name] = error.stack
      client = await leave(client)
    }
  }
  await leave(client)
  return outcome
}

async function leave (client) {
  await client?.browser.disconnect()
}

for await (const line of createInterface({ input: process.stdin })) {
  run(JSON.parse(line)).then(outcome => process.stdout.write(JSON.stringify(outcome) + '\n'))
}
