// Playwright: a browser that it launches for each session. Argument: the program.
import playwright from "playwright";
import { answer } from "./work.mjs";

const [program] = process.argv.slice(2);

await answer({
  session: async (work) => {
    const browser = await playwright.chromium.launch({ executablePath: program });
    try {
      await work(await browser.newPage());
    } finally {
      await browser.close();
    }
  },
  close: async () => {},
});
