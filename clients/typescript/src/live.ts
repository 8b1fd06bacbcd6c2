import { retryAfter, type LikewiseError } from "./error.js";
import { backOff, newKey, wait } from "./retry.js";
import { errorOf, openStream, type Connection, type StreamTargets, type StreamUpdate } from "./stream.js";

export interface LiveOptions {
  /** Whether the tab follows while it is hidden; true by default. If not, it gets what has changed once it is shown. */
  whileHidden?: boolean;
  /** Called if the server refuses the stream for good, such as after the end of the session. Nothing is followed then. */
  onError?: (error: Pick<LikewiseError, "status" | "code" | "message">) => void;
}

/** One part of a page that follows something. */
export interface Follower {
  /** Replaces what is followed. */
  change(targets: StreamTargets): void;
  /** Ends it. */
  close(): void;
}

/** What is followed, in the form of a body of `PUT /v1/streams/{id}`. */
interface Wants {
  posts: number[];
  comments: number[];
  drops: number[];
  threads: number[];
  tags: string[];
  new_posts: boolean;
  notifications: boolean;
}

type Failure = Pick<LikewiseError, "status" | "code" | "message">;

/** What tabs send each other. A tab sends what it wants; the leader, which has the connection, the rest. */
type Message =
  | { kind: "want"; tab: string; keys: string[] }
  | { kind: "lead" } // there is a new leader: tell it what you want
  | { kind: "update"; update: StreamUpdate }
  | { kind: "failed"; failure: Failure };

/** How many targets a stream can have. Those of the tabs that changed last come first. */
const maxTargets = 512;

/**
 * A stream that all tabs of a browser share. The tab that holds a Web Lock leads: it has the connection, follows what any
 * tab wants, and passes updates on over a BroadcastChannel. If it is closed, another one leads. Without either of the two,
 * as on a page without TLS, each tab has a connection of its own.
 */
export class LiveStream {
  private readonly tab = newKey();
  private readonly name: string;
  private readonly followers = new Map<object, { keys: Set<string>; listener: (update: StreamUpdate) => void }>();
  private readonly known = new Map<string, StreamUpdate>(); // the latest update of each key that this tab wants
  private readonly closing = new AbortController();
  private readonly channel: BroadcastChannel | undefined;
  private readonly locks: LockManager | undefined;
  private readonly page = (globalThis as { document?: Document }).document;
  private readonly present: Promise<unknown>; // settled once the lock shows that this tab is there
  private wanted = new Set<string>(); // the keys that this tab has announced
  private candidacy: AbortController | undefined; // while this tab leads, or waits to lead
  private leader: Leader | undefined; // while this tab leads

  constructor(
    private readonly connection: Connection,
    token: string | undefined,
    private readonly options: LiveOptions,
  ) {
    this.name = `likewise ${connection.base} ${hash(token ?? "")}`;
    this.locks = globalThis.BroadcastChannel && (globalThis as { navigator?: Navigator }).navigator?.locks;
    this.present = Promise.resolve();
    if (this.locks) {
      const locks = this.locks;
      this.channel = new BroadcastChannel(this.name);
      this.channel.onmessage = (event: MessageEvent<Message>) => this.receive(event.data);
      this.present = new Promise((held) => {
        const hold = () => (held(undefined), aborted(this.closing.signal));
        locks.request(`${this.name} ${this.tab}`, hold).catch(held);
      });
    }
    this.page?.addEventListener("visibilitychange", this.announce);
  }

  /** Calls `listener` with the present state of the targets, and with each change, until the follower is closed. */
  follow(targets: StreamTargets, listener: (update: StreamUpdate) => void): Follower {
    const self = {};
    const change = (targets: StreamTargets) => {
      const before = this.followers.get(self)?.keys;
      const keys = new Set(keysOf(targets));
      this.followers.set(self, { keys, listener });
      this.announce();
      for (const key of keys) {
        const update = before?.has(key) ? undefined : this.known.get(key); // another follower of this tab has it
        if (update) queueMicrotask(() => this.followers.get(self)?.keys.has(key) && listener(update));
      }
    };
    change(targets);
    return {
      change,
      close: () => {
        this.followers.delete(self);
        this.announce();
      },
    };
  }

  /** Ends everything that is followed through this stream. Other tabs go on. */
  close(): void {
    this.followers.clear();
    this.announce();
    this.page?.removeEventListener("visibilitychange", this.announce);
    this.closing.abort();
    void this.present.then(() => this.channel?.close());
  }

  /** Sends the leader what this tab wants, and leads if there is no other. */
  private readonly announce = (): void => {
    const hidden = this.options.whileHidden === false && this.page?.visibilityState === "hidden";
    const keys = hidden ? [] : [...new Set([...this.followers.values()].flatMap((f) => [...f.keys]))];
    for (const key of this.known.keys()) if (!keys.includes(key)) this.known.delete(key);
    this.wanted = new Set(keys);
    if (keys.length > 0 && !this.candidacy) this.candidate();
    if (this.leader) this.leader.want(this.tab, keys);
    else void this.present.then(() => this.closing.signal.aborted || this.post({ kind: "want", tab: this.tab, keys }));
    if (keys.length === 0) {
      if (this.leader) this.post({ kind: "want", tab: this.tab, keys }); // to the next leader
      this.candidacy?.abort();
      this.candidacy = undefined;
    }
  };

  /** Leads once no other tab does, until the candidacy is aborted. */
  private candidate(): void {
    const candidacy = (this.candidacy = new AbortController());
    const lead = async () => {
      if (candidacy.signal.aborted) return;
      const send = (message: Message) => {
        this.post(message);
        this.receive(message);
      };
      const leader = (this.leader = new Leader(this.connection, send, candidacy.signal, (tab, gone) => {
        this.locks?.request(`${this.name} ${tab}`, { signal: candidacy.signal }, gone).catch(() => undefined);
      }));
      this.announce();
      this.post({ kind: "lead" });
      await aborted(candidacy.signal);
      if (this.leader === leader) this.leader = undefined;
    };
    if (!this.locks) void lead();
    else this.locks.request(this.name, { signal: candidacy.signal }, lead).catch(() => undefined); // it was aborted
  }

  private post(message: Message): void {
    if (!this.closing.signal.aborted) this.channel?.postMessage(message);
  }

  private receive(message: Message): void {
    switch (message.kind) {
      case "want":
        return this.leader?.want(message.tab, message.keys);
      case "lead":
        return this.announce();
      case "failed":
        return this.options.onError?.(message.failure);
      case "update": {
        const key = keyOf(message.update);
        if (!this.wanted.has(key)) return;
        const known = this.known.get(key);
        if (known && JSON.stringify(known.data) === JSON.stringify(message.update.data)) return; // sent for another tab
        this.known.set(key, message.update);
        for (const { keys, listener } of [...this.followers.values()]) if (keys.has(key)) listener(message.update);
      }
    }
  }
}

/** The connection of all tabs, until the signal aborts. */
class Leader {
  private readonly wanted = new Map<string, string[]>(); // by tab, the one that changed last at the end
  private readonly known = new Map<string, StreamUpdate>(); // the latest update of each key
  private followed = ""; // the wants of the stream, encoded; "" while there is none
  private id: string | undefined; // of the stream
  private drop: () => void = () => undefined;
  private changing = false;
  private running: AbortController | undefined;

  constructor(
    private readonly connection: Connection,
    private readonly send: (message: Message) => void,
    private readonly signal: AbortSignal,
    private readonly onGone: (tab: string, gone: () => void) => void,
  ) {}

  /** Sets what a tab wants, and sends what is known of it. */
  want(tab: string, keys: string[]): void {
    if (!this.wanted.has(tab)) this.onGone(tab, () => this.forget(tab));
    const before = new Set(this.wanted.get(tab));
    this.wanted.delete(tab);
    this.wanted.set(tab, keys);
    for (const key of keys) {
      const update = before.has(key) ? undefined : this.known.get(key);
      if (update) this.send({ kind: "update", update });
    }
    this.apply();
  }

  private forget(tab: string): void {
    this.wanted.delete(tab);
    this.apply();
  }

  /** Opens, changes or ends the stream, so that it follows what is wanted. */
  private apply(): void {
    if (this.signal.aborted) return;
    const keys = this.keys();
    for (const key of this.known.keys()) if (!keys.includes(key)) this.known.delete(key);
    if (keys.length === 0) {
      this.running?.abort();
      this.running = undefined;
    } else if (!this.running) void this.run();
    else void this.change();
  }

  private keys(): string[] {
    const latest = [...this.wanted.values()].reverse().flat();
    return [...new Set(latest)].slice(0, maxTargets);
  }

  private async run(): Promise<void> {
    const running = (this.running = new AbortController());
    const stop = () => running.abort();
    this.signal.addEventListener("abort", stop, { once: true });
    const targets = () => {
      const wants = wantsOf(this.keys());
      this.followed = JSON.stringify(wants);
      return wants;
    };
    const opened = (id: string | undefined, drop: () => void) => {
      if (this.running !== running) return;
      this.id = id;
      this.drop = drop;
      void this.change();
    };
    try {
      for await (const update of openStream(this.connection, { targets, opened }, { signal: running.signal })) {
        const key = keyOf(update);
        if (!this.keys().includes(key)) continue; // it was sent before the change
        this.known.set(key, update);
        this.send({ kind: "update", update });
      }
    } catch (err) {
      this.fail(err as LikewiseError);
    } finally {
      this.signal.removeEventListener("abort", stop);
      if (this.running === running) this.running = this.id = undefined;
    }
  }

  /** Changes the open stream until it follows what is wanted. If it has ended, the next one names that in its URL. */
  private async change(): Promise<void> {
    if (this.changing) return;
    this.changing = true;
    const { base, fetch, authorize, retry } = this.connection;
    try {
      for (let failures = 0; this.id !== undefined && this.running; ) {
        const keys = this.keys();
        const body = JSON.stringify(wantsOf(keys));
        if (body === this.followed || keys.length === 0) return;
        const { id, running, drop } = this;
        const headers = new Headers({ "Content-Type": "application/json" });
        authorize(headers);
        const request = new Request(`${base}/v1/streams/${id}`, { method: "PUT", headers, body, signal: running.signal });
        const response = await fetch(request).catch(() => undefined); // the connection was lost
        if (this.id !== id) continue;
        if (response?.ok) {
          this.followed = body;
          failures = 0;
        } else if (response?.status === 404) {
          this.id = undefined;
          drop(); // the stream has ended, or is in a process that this one does not know
        } else if (response && response.status < 500 && response.status !== 429) {
          running.abort();
          return this.fail(await errorOf(response));
        } else {
          const asked = (response && retryAfter(response)) ?? 0;
          await wait(backOff(failures++, retry, asked * 1000), running.signal).catch(() => undefined);
        }
      }
    } finally {
      this.changing = false;
    }
  }

  private fail({ status, code, message }: LikewiseError): void {
    this.send({ kind: "failed", failure: { status, code, message } });
  }
}

const kinds = { posts: "post", comments: "comment", drops: "drop", threads: "thread" } as const;

/** Returns the keys of the updates of targets. */
function keysOf(targets: StreamTargets): string[] {
  const keys: string[] = [];
  for (const [name, kind] of Object.entries(kinds)) {
    for (const id of targets[name as keyof typeof kinds] ?? []) keys.push(`${kind} ${id}`);
  }
  for (const tag of targets.tags ?? []) keys.push(`posts ${tag.trim().normalize().toLowerCase().normalize()}`);
  if (targets.new_posts) keys.push("posts");
  if (targets.notifications) keys.push("notifications");
  return keys;
}

function keyOf({ data }: StreamUpdate): string {
  switch (data.type) {
    case "posts":
      return data.tag === null ? "posts" : `posts ${data.tag}`;
    case "notifications":
      return "notifications";
    default:
      return `${data.type} ${data.id}`;
  }
}

/** Returns the targets of keys, in an order that does not depend on theirs. */
function wantsOf(keys: string[]): Wants {
  const having = (kind: string) => keys.filter((key) => key.startsWith(`${kind} `)).map((key) => key.slice(kind.length + 1));
  const ids = (kind: string) => having(kind).map(Number).sort((a, b) => a - b);
  return {
    posts: ids("post"),
    comments: ids("comment"),
    drops: ids("drop"),
    threads: ids("thread"),
    tags: having("posts").sort(),
    new_posts: keys.includes("posts"),
    notifications: keys.includes("notifications"),
  };
}

/** Resolves when the signal aborts. */
function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** Returns the hash FNV-1a of a text: tabs with different tokens share nothing. */
function hash(text: string): string {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return (h >>> 0).toString(16);
}
