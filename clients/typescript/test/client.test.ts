import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { createClient, LikewiseError, ok } from "../src/index.js";

// A server that answers as each test has it, for what a real one does rarely.
let answer: (request: IncomingMessage, response: ServerResponse, n: number) => void;
let requests: IncomingMessage[] = [];
const server = createServer((request, response) => {
  requests.push(request);
  request.resume().on("end", () => answer(request, response, requests.length));
});
before(() => once(server.listen(0, "127.0.0.1"), "listening"));
after(() => {
  server.close();
  server.closeAllConnections();
});
const baseUrl = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const quick = { firstWait: 1 };

function serve(respond: typeof answer): void {
  requests = [];
  answer = respond;
}

const json = (response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) =>
  response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(body));

test("503 and 429 are repeated after Retry-After, with the same key and body", async () => {
  const bodies: string[] = [];
  serve((request, response, n) => {
    bodies.push(String(request.headers["idempotency-key"]));
    if (n === 1) json(response, 503, {}, { "Retry-After": "1" });
    else if (n === 2) json(response, 429, {}, { "Retry-After": "0" });
    else if (n === 3) json(response, 409, {}, { "Retry-After": "0" }); // the first is still in progress
    else json(response, 201, { id: 7 });
  });
  const api = createClient({ baseUrl: baseUrl(), retry: quick });
  const begin = Date.now();
  const post = await ok(api.POST("/v1/posts", { body: { title: "T", content: "C" } }));
  assert.equal(post.id, 7);
  assert.ok(Date.now() - begin >= 1000, "it waited as asked");
  assert.equal(bodies.length, 4);
  assert.match(bodies[0]!, /^[0-9a-f]{32}$/);
  assert.equal(new Set(bodies).size, 1, "one key for all attempts of a call");
  await ok(api.POST("/v1/posts", { body: { title: "T", content: "C" } }));
  assert.notEqual(bodies[4], bodies[0], "another call has another key");
  await ok(api.POST("/v1/posts", { params: { header: { "Idempotency-Key": "my own key" } }, body: { title: "T", content: "C" } }));
  assert.equal(bodies[5], "my own key");
});

test("a lost connection is repeated if that is safe", async () => {
  serve((request, response, n) => {
    if (n === 1) request.socket.destroy();
    else json(response, 200, { liked: true, likes_count: 1 });
  });
  const api = createClient({ baseUrl: baseUrl(), retry: quick });
  await ok(api.PUT("/v1/posts/{id}/like", { params: { path: { id: 1 } } }));
  assert.equal(requests.length, 2);
  serve((request) => request.socket.destroy());
  const edit = api.PATCH("/v1/posts/{id}", { params: { path: { id: 1 }, header: { "If-Match": '"1"' } }, body: { title: "T" } });
  await assert.rejects(edit, TypeError);
  assert.equal(requests.length, 1, "the first may have made a new version");
});

test("the older of two clicks is not sent again", async () => {
  const path = { params: { path: { id: 1 } } };
  const api = createClient({ baseUrl: baseUrl(), retry: { firstWait: 50 } });
  for (const fail of [
    (response: ServerResponse) => json(response, 503, {}, { "Retry-After": "0" }),
    (response: ServerResponse) => response.destroy(),
  ]) {
    serve((request, response) => {
      if (request.method === "PUT") fail(response);
      else json(response, 200, { liked: false, likes_count: 0 });
    });
    const older = api.PUT("/v1/posts/{id}/like", path).then(({ response }) => response.status, () => 0);
    await ok(api.DELETE("/v1/posts/{id}/like", path));
    assert.ok([503, 0].includes(await older));
    assert.deepEqual(requests.map((request) => request.method), ["PUT", "DELETE"]);
  }
  serve((_, response) => json(response, 409, { code: "superseded" }));
  assert.equal((await api.PUT("/v1/posts/{id}/like", path)).response.status, 409);
  assert.equal(requests.length, 1);
});

test("retries end: after the attempts, for a long Retry-After, and when they are off", async () => {
  const refuse = (seconds: string) => serve((_, response) => json(response, 503, {}, { "Retry-After": seconds }));
  const calls = async (retry: Parameters<typeof createClient>[0]["retry"]) => {
    const { response } = await createClient({ baseUrl: baseUrl(), ...(retry !== undefined && { retry }) }).GET("/v1/tags");
    assert.equal(response.status, 503);
    return requests.length;
  };
  refuse("0");
  assert.equal(await calls({ ...quick, attempts: 3 }), 3);
  refuse("3600");
  assert.equal(await calls(quick), 1);
  refuse("0");
  assert.equal(await calls(false), 1);
});

test("a signal ends a call while it waits", async () => {
  const stop = new AbortController();
  serve((_, response) => {
    json(response, 503, {}, { "Retry-After": "20" });
    setTimeout(() => stop.abort(new Error("enough")), 20);
  });
  const api = createClient({ baseUrl: baseUrl() });
  await assert.rejects(api.GET("/v1/tags", { signal: stop.signal }), /enough/);
  assert.equal(requests.length, 1);
});

test("a problem and an answer of a proxy are told apart", async () => {
  serve((_, response) => json(response, 404, { code: "not_found", detail: "No.", request_id: "1" }, { "Content-Type": "application/problem+json" }));
  const api = createClient({ baseUrl: baseUrl() });
  await assert.rejects(ok(api.GET("/v1/me")), (err: LikewiseError) => err.code === "not_found" && err.status === 404);
  serve((_, response) => response.writeHead(502, { "Content-Type": "text/html" }).end("<h1>Bad gateway</h1>"));
  await assert.rejects(ok(api.GET("/v1/me")), (err: LikewiseError) => err.problem === undefined && err.status === 502);
});

test("a stream reconnects with the id of its last event", async () => {
  const counts = (likes: number) => JSON.stringify({ type: "post", id: 1, likes_count: likes, comments_count: 0 });
  serve((request, response, n) => {
    if (n === 2) return void json(response, 503, {}, { "Retry-After": "0" });
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    if (n === 1) {
      // An event in pieces, with the line ends of other servers, and one that is cut.
      response.write("retry: 1\r\n\r\n: hello\n\nid: one\neve");
      response.write(`nt: counts\r\ndata: ${counts(1)}\r\n\r\ndata: {"cut":`);
      response.end();
    } else response.write(`event: gone\nid: two\ndata: {"type":"post","id":1}\n\n`);
    request.on("close", () => response.end());
  });
  const stop = new AbortController();
  const seen: unknown[] = [];
  const stream = createClient({ baseUrl: baseUrl(), retry: quick }).stream({ posts: [1, 2], comments: [], drops: [3] }, { signal: stop.signal });
  for await (const update of stream) {
    seen.push([update.event, update.lastEventId]);
    if (update.event === "counts" && update.data.type === "post") assert.equal(update.data.likes_count, 1);
    if (update.event === "gone") stop.abort(); // ends the loop without an error
  }
  assert.deepEqual(seen, [["counts", "one"], ["gone", "two"]]);
  assert.deepEqual(requests.map((r) => r.headers["last-event-id"]), [undefined, "one", "one"]);
  assert.equal(requests[0]!.url, "/v1/stream?posts=1%2C2&drops=3");

  serve((_, response) => json(response, 422, { code: "invalid", detail: "No.", request_id: "1" }));
  await assert.rejects(createClient({ baseUrl: baseUrl() }).stream({ posts: [1] }).next(), (err: LikewiseError) => err.code === "invalid");
  assert.equal(requests.length, 1, "what is refused for good is not tried again");
});
