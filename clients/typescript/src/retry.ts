import { retryAfter } from "./error.js";

export interface RetryOptions {
  /** How often a call is tried in all; 5 by default, and 1 for no retries. */
  attempts?: number;
  /** The longest back-off before the second attempt, in milliseconds; 200 by default. It doubles with each attempt. */
  firstWait?: number;
  /**
   * The longest wait before an attempt, in milliseconds; 30,000 by default. If the server asks for more, the call
   * returns its answer.
   */
  maxWait?: number;
}

export const defaultRetry: Required<RetryOptions> = { attempts: 5, firstWait: 200, maxWait: 30_000 };

/**
 * Returns how long to wait after a failed attempt, the first being 0, in milliseconds. It is at least what the server
 * asks for, plus a random part, so that clients that failed together do not return together.
 */
export function backOff(attempt: number, { firstWait, maxWait }: Required<RetryOptions>, asked = 0): number {
  return asked + Math.random() * Math.min(maxWait, firstWait * 2 ** attempt);
}

/** Waits, unless the signal aborts: then it throws the signal's reason. */
export function wait(ms: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/**
 * Sends a request until its answer is final. It is sent again after 429, which has no effect; and after 503 and failures
 * of the connection, if that is safe: see `repeatable`. Once `replaced` returns true, it is not sent again.
 */
export async function send(
  fetch: (request: Request) => Promise<Response>,
  request: () => Request,
  options: Required<RetryOptions>,
  signal: AbortSignal | null | undefined,
  replaced: () => boolean = () => false,
): Promise<Response> {
  for (let attempt = 0; ; attempt++) {
    signal?.throwIfAborted();
    const sent = request();
    const last = attempt + 1 >= options.attempts;
    let asked = 0;
    let end: () => Response; // what becomes of the call if it is not sent again
    try {
      const response = await fetch(sent);
      if (last || replaced() || !isTransient(response, sent)) return response;
      asked = (retryAfter(response) ?? 0) * 1000;
      if (asked > options.maxWait) return response;
      const body = await response.arrayBuffer(); // frees the connection
      end = () => new Response(body, response);
    } catch (err) {
      if (last || replaced() || signal?.aborted || !repeatable(sent)) throw err;
      end = () => {
        throw err;
      };
    }
    await wait(backOff(attempt, options, asked), signal);
    if (replaced()) return end();
  }
}

/**
 * Reports whether a request may be sent again although the first may have taken effect. A second PATCH would get 412,
 * because the first has made a new version.
 */
function repeatable(request: Request): boolean {
  if (request.method === "POST") return request.headers.has("Idempotency-Key");
  return request.method !== "PATCH";
}

function isTransient(response: Response, request: Request): boolean {
  if (response.status === 429) return true;
  if (response.status === 503) return repeatable(request);
  // The first request with this key is still in progress.
  return response.status === 409 && response.headers.has("Retry-After") && request.headers.has("Idempotency-Key");
}

/** Returns a new key: 128 random bits. */
export function newKey(): string {
  const bytes = new Uint8Array(16);
  // Node 18 has no global crypto. Keys of accounts need only differ.
  if (globalThis.crypto) globalThis.crypto.getRandomValues(bytes);
  else for (let i = 0; i < bytes.length; i++) bytes[i] = Math.random() * 256;
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
