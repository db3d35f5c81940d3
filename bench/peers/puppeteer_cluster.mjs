// puppeteer-cluster: a job has a page in a fresh context, of one browser for all workers (CONTEXT) or of a browser of
// the worker's own (BROWSER). Arguments: the program, which of the two, and how many workers there are at the most.
import { Cluster } from "puppeteer-cluster";
import puppeteer from "puppeteer";
import { answer } from "./work.mjs";

const [program, concurrency, workers] = process.argv.slice(2);
const HOURS_MS = 10 * 3_600_000;

const cluster = await Cluster.launch({
  puppeteer,
  concurrency: Cluster[`CONCURRENCY_${concurrency}`],
  maxConcurrency: Number(workers),
  timeout: HOURS_MS,
  puppeteerOptions: { executablePath: program, headless: "shell", args: ["--no-sandbox"] },
});

await answer({
  session: (work) => cluster.execute(({ page }) => work(page)),
  // Jobs that are held never end, so the cluster would wait for them; its browsers end with this process.
  close: async () => {},
});
