// Something that one page alone looks at: read when it is opened, again every so often, and when it is told to.
//
// It has the shape that `shown` draws. What was read once stays when a later look fails, except that it is not there.

const PAUSE_MS = 300;

export class Reading {
  // `ask` resolves to what is there now; `everyMs`: 0 for only when it is told to.
  constructor({ ask, everyMs = 0, store, update }) {
    this.ask = ask;
    this.everyMs = everyMs;
    this.store = store;
    this.update = update;
    // loading, ready, failed, forbidden or missing.
    this.state = "loading";
    this.data = null;
    this.error = null;
    this.unreachable = [];
    this.timer = 0;
    // Grows with each look; only what the latest one was answered counts.
    this.looks = 0;
    this.isStopped = false;
  }

  async look() {
    clearTimeout(this.timer);
    if (this.isStopped) return;
    const look = ++this.looks;
    try {
      const data = await this.ask();
      if (look !== this.looks || this.isStopped) return;
      Object.assign(this, { data, state: "ready", error: null });
      this.store.heard();
    } catch (error) {
      if (look !== this.looks || this.isStopped) return;
      this.error = error;
      if (error.isForbidden) this.state = "forbidden";
      else if (error.status === 404) Object.assign(this, { state: "missing", data: null });
      else if (this.data === null) this.state = "failed";
      if (error.isUnreachable) this.store.unheard();
    }
    if (this.everyMs) this.timer = setTimeout(() => this.look(), this.everyMs);
    this.update();
  }

  // Look in a moment: what comes together leads to one look.
  soon() {
    clearTimeout(this.timer);
    if (!this.isStopped) this.timer = setTimeout(() => this.look(), PAUSE_MS);
  }

  // Forget what was read, since something else is wanted now.
  async renew() {
    Object.assign(this, { state: "loading", data: null, error: null });
    this.update();
    await this.look();
  }

  stop() {
    this.isStopped = true;
    clearTimeout(this.timer);
  }
}
