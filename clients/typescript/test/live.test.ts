import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import { createClient, type LikewiseError, type LiveOptions, type LiveStream, type StreamUpdate } from "../src/index.js";

// A server with streams that can be changed. It sends the likes of each post on connecting and after a change.
const open = new Map<string, { response: ServerResponse; posts: number[] }>();
let opened = 0;
let likes = 1;
let changes: number[][] = [];
let refuse = 0; // answers every change with this status
const counts = (posts: number[]) =>
  posts
    .map((id) => `event: counts\ndata: ${JSON.stringify({ type: "post", id, likes_count: likes, comments_count: 0 })}\n\n`)
    .join("");
const server = createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += String(chunk)));
  request.on("end", () => {
    const url = new URL(request.url!, "http://localhost");
    if (request.method === "PUT") {
      const stream = open.get(url.pathname.split("/").pop()!);
      const status = refuse || (stream ? 204 : 404);
      if (status !== 204) {
        response.writeHead(status, { "Content-Type": "application/problem+json" });
        return void response.end(JSON.stringify({ code: "not_found", detail: "No.", request_id: "1", status }));
      }
      const { posts } = JSON.parse(body) as { posts: number[] };
      changes.push(posts);
      stream!.response.write(counts(posts.filter((id) => !stream!.posts.includes(id))));
      stream!.posts = posts;
      return void response.writeHead(204).end();
    }
    const id = `S${++opened}`;
    const posts = url.searchParams.get("posts")!.split(",").map(Number);
    open.set(id, { response, posts });
    response.on("close", () => open.delete(id));
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(`retry: 1\n\nevent: stream\ndata: {"type":"stream","id":"${id}"}\n\n${counts(posts)}`);
  });
});
before(() => once(server.listen(0, "127.0.0.1"), "listening"));
after(() => {
  server.close();
  server.closeAllConnections();
});
beforeEach(() => {
  opened = refuse = 0;
  likes = 1;
  changes = [];
});

const publish = () => {
  likes++;
  for (const { response, posts } of open.values()) response.write(counts(posts));
};

async function eventually(what: string, condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 10_000; !condition(); await new Promise((resolve) => setTimeout(resolve, 5))) {
    assert.ok(Date.now() < end, what);
  }
}

/** A stream, as each tab has one. */
const tab = (options: LiveOptions = {}, token?: string): LiveStream =>
  createClient({
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    retry: { firstWait: 1 },
    token: () => token,
  }).live(options);

/** Returns a listener, and the likes of posts that it has seen. */
function listener(): { seen: Record<number, number>; on: (update: StreamUpdate) => void; calls: number } {
  const self = {
    seen: {} as Record<number, number>,
    calls: 0,
    on: (update: StreamUpdate) => {
      self.calls++;
      if (update.event === "counts" && update.data.type === "post") self.seen[update.data.id] = update.data.likes_count;
    },
  };
  return self;
}

/** Web Locks, exclusive ones alone, which Node does not have. */
class Locks {
  private readonly last = new Map<string, Promise<unknown>>();

  request(name: string, options: { signal?: AbortSignal } | (() => unknown), callback?: () => unknown): Promise<unknown> {
    const [run, signal] = typeof options === "function" ? [options, undefined] : [callback!, options.signal];
    const turn = (this.last.get(name) ?? Promise.resolve()).then(() => {
      if (!signal?.aborted) return run();
    });
    this.last.set(name, turn);
    return turn;
  }
}

const shared = async (run: () => Promise<void>) => {
  Object.defineProperty(globalThis, "navigator", { value: { locks: new Locks() }, configurable: true });
  try {
    await run();
  } finally {
    Object.defineProperty(globalThis, "navigator", { value: undefined, configurable: true });
  }
};

test("without locks, a tab has a stream of its own, which changes", async () => {
  const live = tab();
  const [a, b] = [listener(), listener()];
  const first = live.follow({ posts: [1] }, a.on);
  await eventually("the first counts", () => a.seen[1] === 1);
  const second = live.follow({ posts: [1, 2] }, b.on);
  await eventually("what another follower has already, and what is new", () => b.seen[1] === 1 && b.seen[2] === 1);
  assert.equal(opened, 1);
  assert.deepEqual(changes, [[1, 2]]);
  publish();
  await eventually("changes", () => a.seen[1] === 2 && b.seen[2] === 2);
  assert.equal(a.seen[2], undefined);
  first.close();
  second.change({ posts: [3] });
  await eventually("the change", () => b.seen[3] === 2);
  second.close();
  await eventually("the end of the stream", () => open.size === 0);
  second.change({ posts: [4] });
  await eventually("another stream", () => b.seen[4] === 2);
  live.close();
  await eventually("the end of the stream", () => open.size === 0);
});

test("a stream that cannot be changed is opened again", async () => {
  const live = tab();
  const a = listener();
  const follower = live.follow({ posts: [1] }, a.on);
  await eventually("the first counts", () => a.seen[1] === 1);
  refuse = 404;
  follower.change({ posts: [2] });
  await eventually("the counts of another stream", () => a.seen[2] === 1);
  assert.equal(opened, 2);
  refuse = 503;
  follower.change({ posts: [3] });
  setTimeout(() => (refuse = 0), 20);
  await eventually("the counts after a retry", () => a.seen[3] === 1);
  assert.equal(opened, 2);
  live.close();

  const failures: Pick<LikewiseError, "status" | "code">[] = [];
  const other = tab({ onError: (err) => failures.push(err) });
  const refused = other.follow({ posts: [1] }, a.on);
  await eventually("the first counts", () => a.seen[1] === 1 && open.size === 1);
  refuse = 422;
  refused.change({ posts: [2] });
  await eventually("the refusal", () => failures[0]?.status === 422);
  other.close();
});

test("ten tabs share one stream, and another tab leads after the leader", () =>
  shared(async () => {
    const tabs = Array.from({ length: 10 }, (_, i) => {
      const live = tab();
      const heard = listener();
      live.follow({ posts: [1, i + 10] }, heard.on);
      return { live, heard, own: i + 10 };
    });
    const all = (tabs: { heard: ReturnType<typeof listener>; own: number }[], n: number) =>
      tabs.every(({ heard, own }) => heard.seen[1] === n && heard.seen[own] === n);
    await eventually("the first counts in all tabs", () => all(tabs, 1));
    assert.equal(opened, 1);
    publish();
    await eventually("changes in all tabs", () => all(tabs, 2));
    assert.deepEqual(Object.keys(tabs[3]!.heard.seen), ["1", "13"], "no tab hears what it does not follow");
    assert.equal(open.size, 1);

    tabs[5]!.live.close();
    await eventually("nobody follows what the closed tab did", () => !changes.at(-1)?.includes(15));
    const left = tabs.filter((_, i) => i !== 5 && i !== 0);
    tabs[0]!.live.close(); // it leads
    await eventually("another tab leads", () => opened === 2 && open.size === 1);
    publish();
    await eventually("changes in the other tabs", () => all(left, 3));
    assert.equal(open.size, 1);

    const other = listener();
    const stranger = tab({}, "token of another account");
    stranger.follow({ posts: [1] }, other.on);
    await eventually("a stream of the other account", () => other.seen[1] === 3);
    assert.equal(open.size, 2);
    for (const { live } of [...left, { live: stranger }]) live.close();
    await eventually("the end of the streams", () => open.size === 0);
  }));

test("a hidden tab lets go of the stream", async () => {
  const page = Object.assign(new EventTarget(), { visibilityState: "visible" });
  Object.defineProperty(globalThis, "document", { value: page, configurable: true });
  try {
    const live = tab({ whileHidden: false });
    const a = listener();
    live.follow({ posts: [1] }, a.on);
    await eventually("the first counts", () => a.seen[1] === 1);
    const show = (state: string) => {
      page.visibilityState = state;
      page.dispatchEvent(new Event("visibilitychange"));
    };
    show("hidden");
    await eventually("the end of the stream", () => open.size === 0);
    likes = 7;
    show("visible");
    await eventually("what has changed", () => a.seen[1] === 7);
    live.close();
    await eventually("the end of the stream", () => open.size === 0);
  } finally {
    Object.defineProperty(globalThis, "document", { value: undefined, configurable: true });
  }
});
