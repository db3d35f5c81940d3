// browserless: a client that connects has a Chromium of its own; clients are Puppeteer's here. Arguments: the program,
// the port that it listens on, a directory for its files, and how many clients at once.
//
// It starts the browser that Playwright would have downloaded, and has no setting for another one; so Playwright is
// told where that one is.
import playwright from "playwright-core";

const [program, port, directory, clients] = process.argv.slice(2);
playwright.chromium.executablePath = () => program;
Object.assign(process.env, {
  HOST: "127.0.0.1",
  PORT: port,
  TOKEN: "bench",
  CONCURRENT: clients,
  QUEUED: clients,
  TIMEOUT: "3600000",
  DATA_DIR: directory,
  DOWNLOAD_DIR: directory,
  DEBUG: "-*",
});
const browserless = await import("@browserless.io/browserless");
const { default: puppeteer } = await import("puppeteer");
const { answer } = await import("./work.mjs");

const server = new browserless.Browserless();
// It does not start with routes for browsers that are not there.
for (const kind of ["Chrome", "Edge", "Firefox", "WebKit"]) {
  server.disableRoutes(...Object.values(browserless[`Browserless${kind}Routes`]));
}
const address = `ws://127.0.0.1:${port}/chromium?token=bench&launch=${JSON.stringify({ args: ["--no-sandbox"] })}`;

await answer({
  ready: () => server.start(),
  session: async (work) => {
    const browser = await puppeteer.connect({ browserWSEndpoint: address, defaultViewport: null });
    try {
      await work((await browser.pages())[0] ?? (await browser.newPage()));
    } finally {
      await browser.close();
    }
  },
  // Stopping it does not end while clients are connected; what it started ends with this process.
  close: async () => {},
});
