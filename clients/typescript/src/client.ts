import { defaultRetry, newKey, send, type RetryOptions } from "./retry.js";
import { LiveStream, type LiveOptions } from "./live.js";
import { openStream, type StreamOptions, type StreamTargets, type StreamUpdate } from "./stream.js";
import type { Call, CallOptions, Method } from "./types.js";
import { fillPath, queryString } from "./url.js";

export interface Options {
  /** Where the API is, without `/v1`, such as `https://forum.example`. */
  baseUrl: string;
  /** Returns the token for a call; undefined makes the call anonymous. */
  token?: () => string | undefined;
  /** Replaces the global `fetch`. */
  fetch?: (request: Request) => Promise<Response>;
  /** How calls are repeated after 429, 503 and failures of the connection; false for never. */
  retry?: RetryOptions | false;
}

/** A typed `fetch`: `api.GET("/v1/posts/{id}", { params: { path: { id: 1 } } })`. */
export interface Likewise {
  GET: Call<"GET">;
  POST: Call<"POST">;
  PUT: Call<"PUT">;
  PATCH: Call<"PATCH">;
  DELETE: Call<"DELETE">;
  /**
   * Follows posts, comments and more, on a connection of its own: yields an update when one changes, and reconnects by
   * itself until the signal aborts, the loop is left, or the server refuses the stream for good.
   */
  stream(targets: StreamTargets, options?: StreamOptions): AsyncGenerator<StreamUpdate, void, undefined>;
  /**
   * Returns a stream that all tabs of the browser share, and whose targets can change. It connects once something is
   * followed. After the token has changed, close it and make another one.
   */
  live(options?: LiveOptions): LiveStream;
}

/** What the calls of all paths take. The types of each are in `Call`. */
interface AnyInit extends CallOptions {
  params?: { path?: object; query?: object; header?: object };
  body?: unknown;
}

export function createClient({ baseUrl, token, fetch = (request) => globalThis.fetch(request), retry }: Options): Likewise {
  const base = baseUrl.replace(/\/+$/, "");
  const retrying = { ...defaultRetry, ...(retry === false ? { attempts: 1 } : retry) };

  const authorize = (headers: Headers) => {
    const current = token?.();
    if (current !== undefined && !headers.has("Authorization")) headers.set("Authorization", `Bearer ${current}`);
  };

  // The latest PUT or DELETE of each address. An earlier one is not sent again: it would undo the later one.
  const latest = new Map<string, object>();

  const call = async (method: Method, path: string, { params = {}, body, headers: more, signal }: AnyInit = {}) => {
    const url = base + fillPath(path, params.path) + queryString(params.query);
    const headers = new Headers();
    for (const [name, value] of Object.entries({ ...params.header, ...more })) {
      if (value !== undefined && value !== null) headers.set(name, String(value));
    }
    authorize(headers);
    if (method === "POST" && !headers.has("Idempotency-Key")) headers.set("Idempotency-Key", newKey());
    let sent: RequestInit["body"] | undefined;
    if (isRaw(body)) sent = body;
    else if (body !== undefined) {
      sent = JSON.stringify(body);
      headers.set("Content-Type", "application/json");
    }
    const init: RequestInit = { method, headers, signal: signal ?? null, ...(sent !== undefined && { body: sent }) };
    const self = {};
    const address = `${url} ${headers.get("Authorization")}`;
    const absolute = method === "PUT" || method === "DELETE";
    if (absolute) latest.set(address, self);
    const replaced = () => absolute && latest.get(address) !== self;
    const response = await send(fetch, () => new Request(url, init), retrying, signal, replaced).finally(() => {
      if (latest.get(address) === self) latest.delete(address);
    });
    if (response.ok) return { data: await read(response), response };
    return { error: await read(response), response };
  };

  const by = <M extends Method>(method: M) => ((path: string, init?: AnyInit) => call(method, path, init)) as unknown as Call<M>;
  return {
    GET: by("GET"),
    POST: by("POST"),
    PUT: by("PUT"),
    PATCH: by("PATCH"),
    DELETE: by("DELETE"),
    stream: (targets, options = {}) =>
      openStream({ base, fetch, authorize, retry: retrying }, { targets: () => targets, opened: () => undefined }, options),
    live: (options = {}) => new LiveStream({ base, fetch, authorize, retry: retrying }, token?.(), options),
  };
}

/** Reports whether a body is sent as it is, and not as JSON. */
function isRaw(body: unknown): body is NonNullable<RequestInit["body"]> {
  return body instanceof Blob || body instanceof FormData || body instanceof ArrayBuffer || ArrayBuffer.isView(body);
}

async function read(response: Response): Promise<unknown> {
  if (response.status === 204 || response.status === 304) return undefined;
  const type = response.headers.get("Content-Type") ?? "";
  if (/^application\/([a-z.]+\+)?json\b/.test(type)) {
    const text = await response.text();
    return text === "" ? undefined : JSON.parse(text);
  }
  if (type.startsWith("text/") || type.startsWith("application/yaml")) return response.text();
  return response.blob();
}
