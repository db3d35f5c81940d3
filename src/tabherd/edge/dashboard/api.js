// Calls to this server, in the name of whoever is logged in.

const BASE = new URL("../", import.meta.url);
// The word that belongs to the cookie; kept where only pages of this origin, port and all, can read it.
const CSRF_KEY = "tabherd.csrf";

// What the server refused, or that it did not answer (code "unreachable").
export class ApiError extends Error {
  constructor(status, body) {
    super(body.message || `The server answered ${status}.`);
    this.status = status;
    this.code = body.code || "";
    this.action = body.action || "";
    this.details = body.details || {};
    this.retryAfterMs = body.retryAfterMs ?? null;
  }

  get isForbidden() {
    return this.status === 403;
  }

  get isUnreachable() {
    return this.status === 0;
  }
}

export const csrf = () => localStorage.getItem(CSRF_KEY) || "";

// Heard when the login is over: {detail: ApiError}.
export const logins = new EventTarget();

// How far this machine's clock is behind the server's, in milliseconds; good to a second.
let skewMs = 0;
export const serverNow = () => Date.now() + skewMs;

export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

export function socketAddress(path, query = {}) {
  const url = address(path, { ...query, csrf: csrf() });
  url.protocol = url.protocol.replace("http", "ws");
  return url;
}

// The response itself, for streams; raises ApiError unless it is a success.
export async function request(method, path, { query, body, headers, signal } = {}) {
  const sent = { "x-csrf-token": csrf(), ...headers };
  if (body !== undefined) sent["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unreachable", message: "The server does not answer.", action: "It is tried again." });
  }
  const at = Date.parse(response.headers.get("date") || "");
  if (at && Math.abs(at - Date.now()) > 2_000) skewMs = at - Date.now();
  if (response.ok) return response;
  let said = {};
  try {
    said = await response.json();
  } catch {
    // A proxy before the server may answer with a page of its own: the status is all there is to tell.
  }
  const error = new ApiError(response.status, said);
  if (response.status === 401 && path !== "/login") logins.dispatchEvent(new CustomEvent("over", { detail: error }));
  throw error;
}

async function call(method, path, options) {
  const response = await request(method, path, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body = undefined, query = undefined) => call("POST", path, { body, query });
export const patch = (path, body, query = undefined) => call("PATCH", path, { body, query });
export const remove = (path, query) => call("DELETE", path, { query });

// Who one is; raises a 401 for nobody.
export const whoAmI = () => get("/login");

export async function logIn(token) {
  const me = await call("POST", "/login", { body: { token } });
  if (me.csrf) localStorage.setItem(CSRF_KEY, me.csrf);
  return me;
}

export async function logOut() {
  await remove("/login");
  localStorage.removeItem(CSRF_KEY);
}
