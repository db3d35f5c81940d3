// What every peer is asked to do, on top of the one thing that they differ in: `session(work)`, which runs `work(page)`
// in a fresh isolated session and resolves when that has been given back.
//
// Orders are lines of JSON on the input, answers are lines of JSON on the output, one at a time. The end of the input
// is the end of the process, and of every browser that it started.
import readline from "node:readline";

const now = () => performance.now();

export async function answer({ session, ready = async () => {}, visit = session, close }) {
  const orders = {
    // Milliseconds from asking for a session to its first answer.
    async acquire() {
      const began = now();
      let ms = 0;
      await session(async (page) => {
        if ((await page.evaluate("1 + 1")) !== 2) throw new Error("the page cannot add");
        ms = now() - began;
      });
      return ms;
    },

    // So many more sessions with this page loaded, until the process ends. Their count is the answer.
    async hold({ count, url }) {
      await together(count, (loaded, failed) =>
        session(async (page) => {
          await page.goto(url);
          loaded();
          await new Promise(() => {});
        }).catch(failed),
      );
      return count;
    },

    // Seconds for so many sessions in which the page is loaded and clicked on once, so many at once.
    async visits({ count, at_once, url }) {
      let left = count;
      const visitor = async () => {
        while (left-- > 0) {
          await visit(async (page) => {
            await page.goto(url);
            await page.click("#go");
            if ((await page.evaluate("window.clicks")) !== 1) throw new Error("the click was lost");
          }, url);
        }
      };
      const began = now();
      await Promise.all(Array.from({ length: at_once }, visitor));
      return (now() - began) / 1000;
    },

    // Seconds for so many clicks on each of so many pages at once, one after the other on each.
    async clicks({ tabs, each, url }) {
      let go;
      const started = new Promise((resolve) => (go = resolve));
      let done;
      await together(tabs, (loaded, failed) => {
        const ended = session(async (page) => {
          await page.goto(url);
          loaded();
          await started;
          for (let n = 0; n < each; n++) await page.click("#go");
          if ((await page.evaluate("window.clicks")) !== each) throw new Error("a click was lost");
        });
        ended.catch(failed);
        done = Promise.all([done, ended]);
      });
      const began = now();
      go();
      await done;
      return (now() - began) / 1000;
    },
  };

  await ready();
  say("ready");
  try {
    for await (const line of readline.createInterface({ input: process.stdin })) {
      const { order, ...details } = JSON.parse(line);
      say(await orders[order](details));
    }
  } finally {
    await close();
  }
  process.exit(0);
}

// Resolves when each of so many has said that it has begun; rejects with the first that failed.
function together(count, begin) {
  return Promise.all(Array.from({ length: count }, () => new Promise((resolve, reject) => begin(resolve, reject))));
}

function say(what) {
  process.stdout.write(JSON.stringify(what) + "\n");
}
