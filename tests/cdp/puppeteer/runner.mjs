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

const cases = { ...actions, ...network, ...orders, ...pages, ...state }

async function run (order) {
  const outcome = { number: order.number, error: null, strangers: [] }
  let client
  try {
    client = await connect(order)
    await cases[order.case](client)
    outcome.strangers = await client.strangers()
  } catch (error) {
    outcome.error = error.stack
  }
  await client?.browser.disconnect()
  return outcome
}

for await (const line of createInterface({ input: process.stdin })) {
  run(JSON.parse(line)).then(outcome => process.stdout.write(JSON.stringify(outcome) + '\n'))
}
