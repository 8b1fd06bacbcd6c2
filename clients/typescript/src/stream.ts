import { isProblem, LikewiseError, retryAfter } from "./error.js";
import { backOff, wait, type RetryOptions } from "./retry.js";
import type { Schema } from "./types.js";
import { queryString } from "./url.js";

/** What to follow. */
export interface StreamTargets {
  /** Ids of posts, for their counts. */
  posts?: Iterable<number>;
  comments?: Iterable<number>;
  drops?: Iterable<number>;
  /** Ids of posts, for their new comments and drops. */
  threads?: Iterable<number>;
  /** Names of tags, for their new posts. */
  tags?: Iterable<string>;
  /** The new posts of the site. */
  new_posts?: boolean;
  /** The unread notifications of the caller. */
  notifications?: boolean;
}

export interface StreamOptions {
  /** Ends the stream, without an error. */
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
  type: "post" | "comment" | "drop" | "thread";
  id: number;
}

/** The latest 20 comments on a post, latest first, and all of its drops. */
export interface ThreadNews {
  type: "thread";
  id: number;
  comment_ids: number[];
  drop_ids: number[];
}

/** The latest 20 posts of a tag, or, if the tag is null, of the site, latest first. */
export interface PostNews {
  type: "posts";
  tag: string | null;
  post_ids: number[];
}

/** The number of unread notifications, and the latest five. */
export interface UnreadNews {
  type: "notifications";
  id: number;
  unread_count: number;
  items: Schema<"Notification">[];
}

/** The events of the contract, but for the first one of a stream, which has its id. */
type EventName = Exclude<NonNullable<Schema<"StreamEvent">["event"]>, "stream">;

interface EventData {
  counts: Counts;
  gone: Gone;
  thread: ThreadNews;
  posts: PostNews;
  notifications: UnreadNews;
}

/** An update, by the name of its event. */
export type StreamUpdate = {
  [Name in EventName]: {
    event: Name;
    data: EventData[Name];
    /** What to pass as `lastEventId`: that of the latest event that had one. */
    lastEventId: string | undefined;
  };
}[EventName];

/** What a stream takes from its client. */
export interface Connection {
  base: string;
  fetch: (request: Request) => Promise<Response>;
  authorize: (headers: Headers) => void;
  retry: Required<RetryOptions>;
}

/** The server sends at least a comment in this time; after three, the connection counts as lost. */
const heartbeat = 15_000;

/** Reconnects after this time, until the server sends another one. */
const firstReconnect = 1000;

/** Lets the caller of `openStream` change what the stream follows. */
export interface Control {
  /** What to follow after the next connecting. */
  targets: () => StreamTargets;
  /** Called with the id of each new connection, and with undefined when it has ended. `drop` ends it. */
  opened: (id: string | undefined, drop: () => void) => void;
}

export async function* openStream(
  { base, fetch, authorize, retry }: Connection,
  { targets, opened }: Control,
  { signal, lastEventId }: StreamOptions,
): AsyncGenerator<StreamUpdate, void, undefined> {
  let reconnect = firstReconnect;
  for (let failures = 0; !signal?.aborted; failures++) {
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
      const url = `${base}/v1/stream${queryString(queryOf(targets()))}`;
      const response = await fetch(new Request(url, { headers, signal: connection.signal, cache: "no-store" }));
      if (response.ok && response.body) {
        for await (const event of events(response.body, alive)) {
          failures = 0;
          if (event.retry !== undefined) reconnect = asked = event.retry;
          if (event.id !== undefined) lastEventId = event.id;
          if (event.data === undefined) continue;
          const data: unknown = JSON.parse(event.data);
          if (event.name === "stream") opened((data as { id: string }).id, () => connection.abort());
          else yield { event: event.name, data, lastEventId } as StreamUpdate;
        }
      } else {
        if (response.status < 500 && response.status !== 429) throw await errorOf(response);
        asked = Math.max(asked, (retryAfter(response) ?? 0) * 1000);
        await response.body?.cancel();
      }
    } catch (err) {
      if (err instanceof LikewiseError) throw err;
    } finally { // also when the caller leaves the loop
      clearTimeout(watchdog);
      signal?.removeEventListener("abort", abort);
      connection.abort();
      opened(undefined, () => undefined);
    }
    await wait(backOff(failures, retry, asked), signal).catch(() => undefined); // it throws if the signal aborts
  }
}

function queryOf(targets: StreamTargets): Record<string, unknown> {
  const query: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(targets)) {
    const isList = typeof value === "object" && value !== null;
    const text = isList ? [...value].join(",") : value;
    if (text !== "") query[name] = text;
  }
  return query;
}

export async function errorOf(response: Response): Promise<LikewiseError> {
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
