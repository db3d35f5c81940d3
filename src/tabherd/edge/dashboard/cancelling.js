// Ending tasks that wait or run: one, or many at once.

import { post } from "./api.js";
import { confirm, toast } from "./dialog.js";
import { count } from "./format.js";

const AT_ONCE = 6;
// How often one that is refused for now is tried.
const TRIES_MAX = 20;

// Ask, and cancel these {taskId, agentId, state}; `told` hears after each how many are through. True if it was done.
export async function cancelTasks(tasks, told = () => {}) {
  if (tasks.length === 0 || !(await confirm(question(tasks)))) return false;
  const waiting = [...tasks];
  const tally = { cancelled: 0, over: 0, failed: 0 };
  let problem = null;
  const work = async () => {
    for (let task = waiting.shift(); task; task = waiting.shift()) {
      try {
        await cancelOne(task.taskId);
        tally.cancelled += 1;
      } catch (error) {
        if (error.status === 409 || error.status === 404) tally.over += 1;
        else {
          tally.failed += 1;
          problem = error;
        }
      }
      told(tasks.length - waiting.length);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  toast(summary(tally), problem ? "bad" : "good", problem ? `${problem.message} ${problem.action}` : "");
  return true;
}

async function cancelOne(taskId) {
  for (let tries = 1; ; tries += 1) {
    try {
      await post(`/tasks/${encodeURIComponent(taskId)}/cancel`);
      return;
    } catch (error) {
      if (error.retryAfterMs === null || tries >= TRIES_MAX) throw error;
      await new Promise((resume) => setTimeout(resume, error.retryAfterMs));
    }
  }
}

function question(tasks) {
  const running = tasks.filter((task) => task.state !== "queued").length;
  const stopped = "what it has done to its page stays done.";
  if (tasks.length === 1) {
    const [task] = tasks;
    return {
      title: "Cancel this task?",
      body: `${task.taskId} of ${task.agentId} ${running ? `is at work: it is stopped, and ${stopped}` : "waits for its turn, which it will not get."} It cannot be taken back.`,
      verb: "Cancel the task",
    };
  }
  const agents = new Set(tasks.map((task) => task.agentId)).size;
  return {
    title: `Cancel ${count(tasks.length)} tasks?`,
    body: `They are of ${agents === 1 ? tasks[0].agentId : `${count(agents)} agents`}. ${running ? `${count(running)} of them ${running === 1 ? "is" : "are"} at work and stopped; ${stopped.replace("it has", "they have").replace("its page", "their pages")}` : "None of them has started."} It cannot be taken back.`,
    verb: `Cancel ${count(tasks.length)} tasks`,
  };
}

function summary({ cancelled, over, failed }) {
  return [
    cancelled === 1 ? "One task was cancelled." : `${count(cancelled)} tasks were cancelled.`,
    over && `${count(over)} ${over === 1 ? "was" : "were"} over already.`,
    failed && `${count(failed)} could not be cancelled.`,
  ].filter(Boolean).join(" ");
}
