import { isProblem, LikewiseError, retryAfter } from "./error.js";
import { backOff, wait, type RetryOptions } from "./retry.js";
import type { Schema } from "./types.js";
import { queryString } from "./url.js";

/** Ids of what to follow. Further parameters of the stream are sent as they are. */
export interface StreamTargets {
  posts?: Iterable<number>;
  comments?: Iterable<number>;
  drops?: Iterable<number>;
  [parameter: string]: Iterable<number> | string | number | boolean | undefined;
}

export interface StreamOptions {
  /** Ends the stream. */
  signal?: AbortSignal | null;
  /** The id of the last update that an earlier stream of the same targets yielded: only later changes are sent. */
  lastEventId?: string;
}

/** The present counts of a target. Each update replaces the one before. */
export type Counts =
  | { type: "post"; id: number; likes_count: number; comments_count: number }
  | { type: "comment"; id: number; likes_count: number; replies_count: number }
  | { type: "drop"; id: number; stock: number; claimed: number; remaining: number; state: Schema<"Drop">["state"] };

/** A target that is deleted or never existed. */
export interface Gone {
  type: "post" | "comment" | "drop";
  id: number;
}

type EventName = NonNullable<Schema<"StreamEvent">["event"]>;

interface EventData {
  counts: Counts;
  gone: Gone;
}

/** An update, by the name of its event. */
export type StreamUpdate = {
  [Name in EventName]: {
    event: Name;
    data: Name extends keyof EventData ? EventData[Name] : unknown;
    /** What to pass as `lastEventId`: that of the latest event that had one. */
    lastEventId: string | undefined;
  };
}[EventName];

/** What a stream takes from its client. */
interface Connection {
  base: string;
  fetch: (request: Request) => Promise<Response>;
  authorize: (headers: Headers) => void;
  retry: Required<RetryOptions>;
}

/** The server sends at least a comment in this time; after three, the connection counts as lost. */
const heartbeat = 15_000;

/** Reconnects after this time, until the server sends another one. */
const firstReconnect = 1000;

export async function* openStream(
  { base, fetch, authorize, retry }: Connection,
  targets: StreamTargets,
  { signal, lastEventId }: StreamOptions,
): AsyncGenerator<StreamUpdate, void, undefined> {
  const query: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(targets)) {
    const isList = typeof value === "object" && value !== null;
    const text = isList ? [...value].join(",") : value;
    if (text !== "") query[name] = text;
  }
  const url = `${base}/v1/stream${queryString(query)}`;
  let reconnect = firstReconnect;
  for (let failures = 0; ; failures++) {
    signal?.throwIfAborted();
    let asked = reconnect;
    const connection = new AbortController();
    const abort = () => connection.abort(signal!.reason);
    signal?.addEventListener("abort", abort, { once: true });
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => connection.abort(new Error("the stream is silent")), 3 * heartbeat);
    };
    try {
      const headers = new Headers({ Accept: "text/event-stream" });
      if (lastEventId !== undefined) headers.set("Last-Event-ID", lastEventId);
      authorize(headers);
      alive();
      const response = await fetch(new Request(url, { headers, signal: connection.signal, cache: "no-store" }));
      if (response.ok && response.body) {
        for await (const event of events(response.body, alive)) {
          failures = 0;
          if (event.retry !== undefined) reconnect = asked = event.retry;
          if (event.id !== undefined) lastEventId = event.id;
          if (event.data !== undefined) {
            yield { event: event.name, data: JSON.parse(event.data), lastEventId } as StreamUpdate;
          }
        }
      } else {
        if (response.status < 500 && response.status !== 429) throw await errorOf(response);
        asked = Math.max(asked, (retryAfter(response) ?? 0) * 1000);
        await response.body?.cancel();
      }
    } catch (err) {
      if (err instanceof LikewiseError) throw err;
      signal?.throwIfAborted();
    } finally { // also when the caller leaves the loop
      clearTimeout(watchdog);
      signal?.removeEventListener("abort", abort);
      connection.abort();
    }
    await wait(backOff(failures, retry, asked), signal);
  }
}

async function errorOf(response: Response): Promise<LikewiseError> {
  const problem: unknown = await response.json().catch(() => undefined);
  return new LikewiseError(response, isProblem(problem) ? problem : undefined);
}

interface ServerEvent {
  name: string;
  data: string | undefined;
  id: string | undefined;
  retry: number | undefined;
}

/** Parses server-sent events, as in the HTML standard. `alive` is called for all that arrives. */
async function* events(body: ReadableStream<Uint8Array>, alive: () => void): AsyncGenerator<ServerEvent, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  const none = (): ServerEvent => ({ name: "message", data: undefined, id: undefined, retry: undefined });
  let event = none();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event without its empty line is incomplete
      alive();
      text += decoder.decode(value, { stream: true });
      // A line ends in LF, CR or CRLF. A CR at the end may be half of a CRLF.
      for (let end = /\r\n|\n|\r(?!$)/.exec(text); end; end = /\r\n|\n|\r(?!$)/.exec(text)) {
        const line = text.slice(0, end.index);
        text = text.slice(end.index + end[0].length);
        if (line === "") {
          if (event.data !== undefined || event.retry !== undefined) yield event;
          event = none();
          continue;
        }
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const content = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") event.name = content;
        else if (field === "data") event.data = event.data === undefined ? content : `${event.data}\n${content}`;
        else if (field === "id" && !content.includes("\0")) event.id = content;
        else if (field === "retry" && /^\d+$/.test(content)) event.retry = Number(content);
      }
    }
  } finally {
    reader.cancel().catch(() => undefined); // it may have failed
  }
}
