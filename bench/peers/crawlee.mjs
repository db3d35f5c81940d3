// Crawlee: pages of its browser pool, each in a context of its own, driven by Playwright. Visits are requests of its
// PlaywrightCrawler on such a pool, which is how it is used. Arguments: the program, and how many pages at once.
import { BrowserPool, PlaywrightPlugin } from "@crawlee/browser-pool";
import { Configuration, PlaywrightCrawler, log } from "@crawlee/playwright";
import playwright from "playwright";
import { answer } from "./work.mjs";

const [program, pages] = process.argv.slice(2);
const HOURS_S = 36_000;
const launchOptions = { executablePath: program, chromiumSandbox: false };

log.setLevel(log.LEVELS.ERROR);
const pool = new BrowserPool({
  browserPlugins: [new PlaywrightPlugin(playwright.chromium, { launchOptions, useIncognitoPages: true })],
  maxOpenPagesPerBrowser: Number(pages),
  retireBrowserAfterPageCount: Infinity,
  useFingerprints: false,
});

// What each request is to do, and who waits for it.
const visitors = new Map();
let visits = 0;
const crawler = new PlaywrightCrawler(
  {
    launchContext: { launchOptions, useIncognitoPages: true },
    browserPoolOptions: { useFingerprints: false, retireBrowserAfterPageCount: Infinity },
    keepAlive: true,
    minConcurrency: Number(pages),
    maxConcurrency: Number(pages),
    maxRequestRetries: 0,
    requestHandlerTimeoutSecs: HOURS_S,
    // It loads the page itself; `goto` has nothing left to do.
    requestHandler: async ({ page, request }) => {
      const { work } = visitors.get(request.uniqueKey);
      await work({ goto: async () => {}, click: (selector) => page.click(selector), evaluate: (what) => page.evaluate(what) });
      visitors.get(request.uniqueKey).resolve();
    },
    failedRequestHandler: async ({ request }, error) => visitors.get(request.uniqueKey).reject(error),
  },
  new Configuration({ persistStorage: false, purgeOnStart: false, systemInfoV2: false }),
);
let crawling;

await answer({
  session: async (work) => {
    const page = await pool.newPage();
    try {
      await work(page);
    } finally {
      await page.close();
    }
  },
  visit: (work, url) => {
    crawling ??= crawler.run();
    const uniqueKey = `visit-${visits++}`;
    return new Promise((resolve, reject) => {
      visitors.set(uniqueKey, { work, resolve, reject });
      crawler.addRequests([{ url, uniqueKey }]).catch(reject);
    }).finally(() => visitors.delete(uniqueKey));
  },
  close: async () => {
    await pool.destroy();
    if (crawling) await crawler.teardown();
  },
});
