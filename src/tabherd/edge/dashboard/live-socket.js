// One socket to the live view of a tab: what the server says of it, its frames, and coming back when it breaks.

import { get, logins, socketAddress } from "./api.js";

const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 8_000;
// What a viewer may ask for.
const SIDE_MIN = 16;
const SIDE_MAX = 4_096;
const QUALITY = 70;

const side = (pixels) => Math.min(SIDE_MAX, Math.max(SIDE_MIN, Math.round(pixels)));

export class LiveSocket {
  // `wanted()`: {width, height} of the largest frame that can be seen, in pixels. `draw(bitmap, header)`: a new frame;
  // its bitmap is closed there. `told()`: something else has changed. `refused(error)`: what was asked was not done.
  constructor(tabId, { wanted, draw, told, refused }) {
    Object.assign(this, { tabId, wanted, draw, told, refused });
    // connecting, live, reconnecting; ended and forbidden are final.
    this.phase = "connecting";
    // What the server said last: {tab, driver, mayDrive, viewers}.
    this.state = null;
    // Why it is over, or what keeps it from being shown.
    this.error = null;
    this.socket = null;
    this.retryMs = RETRY_FIRST_MS;
    this.timer = 0;
    // Which connection is the present one; what an older one still brings is not for anybody.
    this.turn = 0;
    this.open();
  }

  open() {
    const turn = ++this.turn;
    const socket = new WebSocket(socketAddress(`/live/${encodeURIComponent(this.tabId)}`, this.size()));
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => {
      if (turn !== this.turn) return;
      if (typeof event.data === "string") this.hear(JSON.parse(event.data));
      else this.take(event.data, turn);
    };
    socket.onclose = () => turn === this.turn && this.lost();
    this.socket = socket;
  }

  // The person has left.
  close() {
    this.turn += 1;
    clearTimeout(this.timer);
    this.socket?.close();
  }

  say(type, fields = {}) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type, ...fields }));
  }

  resize() {
    this.say("size", this.size());
  }

  size() {
    const { width, height } = this.wanted();
    return { width: side(width), height: side(height), quality: QUALITY };
  }

  hear(message) {
    if (message.type === "state") {
      this.state = message;
      this.phase = "live";
      this.retryMs = RETRY_FIRST_MS;
    } else if (message.type === "error") {
      this.refused(message);
    } else if (message.type === "ended") {
      this.over(message.error);
    }
    this.told();
  }

  async take(data, turn) {
    const size = new DataView(data).getUint32(0);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, size)));
    try {
      const bitmap = await createImageBitmap(new Blob([new Uint8Array(data, 4 + size)], { type: "image/jpeg" }));
      if (turn === this.turn) this.draw(bitmap, header);
      else bitmap.close();
    } finally {
      // Also one that cannot be drawn, or no more would come.
      if (turn === this.turn) this.say("ack", { seq: header.seq });
    }
  }

  // What the server says is the end: some of it passes.
  over(error) {
    this.error = error;
    if (error.code === "draining") return;
    if (error.code === "unauthenticated") logins.dispatchEvent(new CustomEvent("over", { detail: error }));
    this.phase = error.code === "forbidden" ? "forbidden" : "ended";
    this.close();
  }

  async lost() {
    if (this.phase === "ended" || this.phase === "forbidden") return;
    this.phase = "reconnecting";
    this.told();
    const turn = this.turn;
    // A page is not told why its socket was refused; the same question over HTTP is answered.
    try {
      await get(`/tabs/${encodeURIComponent(this.tabId)}`);
    } catch (error) {
      if (turn !== this.turn) return;
      if (error.status === 403 || error.status === 404 || error.status === 409) {
        this.over(error);
        this.told();
        return;
      }
    }
    if (turn !== this.turn) return;
    this.timer = setTimeout(() => this.open(), this.retryMs * (0.75 + Math.random() / 2));
    this.retryMs = Math.min(this.retryMs * 2, RETRY_MAX_MS);
  }
}
