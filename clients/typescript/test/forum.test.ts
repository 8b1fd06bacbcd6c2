import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, items, LikewiseError, ok, thread, type Likewise, type Schema, type StreamUpdate } from "../src/index.js";
import { dump, Server, type Imported } from "./server.js";

let server: Server | undefined;
let imported: Imported;
let api: Likewise; // without a token

before(async () => {
  server = await Server.start();
  imported = await server.import();
  api = createClient({ baseUrl: server.url });
  console.log(`browsing ${dump}: ${JSON.stringify(imported)}`);
});

after(() => server?.stop());

const limit = 100;

/** Reads a list to its end, and fails if an id appears twice. */
async function once<Item>(list: AsyncIterable<Item>, id: (item: Item) => number): Promise<Map<number, Item>> {
  const found = new Map<number, Item>();
  for await (const item of list) {
    assert.ok(!found.has(id(item)), `${id(item)} comes twice`);
    found.set(id(item), item);
  }
  return found;
}

/** Calls f with each value, a few at a time. */
async function each<Item>(list: Iterable<Item>, f: (item: Item) => Promise<void>): Promise<void> {
  const left = list[Symbol.iterator]();
  const worker = async () => {
    for (let next = left.next(); !next.done; next = left.next()) await f(next.value);
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

/** Reads a list of likes until it is complete: a like is listed once MySQL has it. */
async function awaitAll<Item>(n: number, what: string, read: () => Promise<Map<number, Item>>): Promise<Map<number, Item>> {
  for (const deadline = Date.now() + 30_000; ; await sleep(50)) {
    const found = await read();
    if (found.size === n) return found;
    assert.ok(Date.now() < deadline, `${what}: ${found.size} of ${n}`);
  }
}

const sum = (numbers: Iterable<number>) => [...numbers].reduce((a, b) => a + b, 0);
const keys = (map: Map<number, unknown>) => [...map.keys()].sort((a, b) => a - b);
const isSorted = (values: number[]) => values.every((value, i) => i === 0 || values[i - 1]! >= value);

/** register returns the token of a new account. A site that verifies addresses first answers without one. */
async function register(client: Likewise, body: Schema<"Registration">): Promise<string> {
  const session = await ok(client.POST("/v1/auth/register", { body }));
  assert.ok("token" in session, "the address has to be confirmed first");
  return session.token;
}

async function problemOf(call: Promise<unknown>): Promise<LikewiseError> {
  try {
    await call;
  } catch (err) {
    assert.ok(err instanceof LikewiseError, String(err));
    assert.equal(err.problem?.request_id, err.response.headers.get("X-Request-Id"));
    return err;
  }
  assert.fail("it was not refused");
}

test("the imported forum is browsed whole", { timeout: 300_000 }, async (t) => {
  const listPosts = (query: NonNullable<Parameters<typeof readPosts>[0]>) => once(items((cursor) => readPosts({ ...query, limit, cursor })), (post) => post.id);
  const readPosts = (query: { sort?: "new" | "hot" | "top" | "active"; author?: number; tag?: string; limit?: number; cursor?: string | undefined }) =>
    api.GET("/v1/posts", { params: { query } });
  const posts = await listPosts({ sort: "new" });
  const comments = new Map<number, Schema<"Comment">>();
  const users = new Map<number, string>(); // seen as an author or a liker

  await t.test("every post is in each order once", async () => {
    assert.equal(posts.size, imported.posts);
    for (const sort of ["hot", "top", "active"] as const) assert.deepEqual(keys(await listPosts({ sort })), keys(posts), sort);
    // A list is in the order of MySQL, which has the imported likes a moment after they are counted.
    let top = [...posts.values()];
    for (const deadline = Date.now() + 30_000; ; await sleep(50)) {
      top = [...(await listPosts({ sort: "top" })).values()];
      if (isSorted(top.map((post) => post.likes_count))) break;
      assert.ok(Date.now() < deadline, `the most liked come first: ${top.map((post) => post.likes_count)}`);
    }
    assert.equal(sum(top.map((post) => post.likes_count)), imported.postLikes);
    for (const post of posts.values()) users.set(post.author.id, post.author.username);
  });

  await t.test("every comment and reply is reached once", async () => {
    const take = (list: Map<number, Schema<"Comment">>) => {
      for (const [id, comment] of list) {
        assert.ok(!comments.has(id), `comment ${id} is reached twice`);
        comments.set(id, comment);
        assert.ok(comment.author, `comment ${id} has no author`);
        users.set(comment.author.id, comment.author.username);
      }
    };
    // Replies nest, so the replies of a comment are read recursively.
    const takeReplies = async (parent: Schema<"Comment">): Promise<number> => {
      if (parent.replies_count === 0) return 0;
      const replies = await once(
        items((cursor) => api.GET("/v1/comments/{id}/replies", { params: { path: { id: parent.id }, query: { limit, cursor } } })),
        (reply) => reply.id,
      );
      assert.equal(replies.size, parent.replies_count);
      for (const reply of replies.values()) assert.equal(reply.parent_id, parent.id);
      take(replies);
      return replies.size + sum(await Promise.all([...replies.values()].map(takeReplies)));
    };
    await each(posts.values(), async (post) => {
      const read = (sort: "old" | "new" | "top") =>
        once(items((cursor) => api.GET("/v1/posts/{id}/comments", { params: { path: { id: post.id }, query: { sort, limit, cursor } } })), (comment) => comment.id);
      const top = await read("old");
      assert.deepEqual(keys(await read("new")), keys(top));
      assert.deepEqual(keys(await read("top")), keys(top));
      take(top);
      const replies = await Promise.all([...top.values()].map(takeReplies));
      assert.equal(top.size + sum(replies), post.comments_count, `comments of post ${post.id}`);
    });
    assert.equal(comments.size, imported.comments);
    assert.equal(sum([...comments.values()].map((comment) => comment.likes_count)), imported.commentLikes);
  });

  await t.test("every comment is reached once through trees that are cut", async () => {
    const found = new Set<number>();
    await each(posts.values(), async ({ id }) => {
      for await (const comment of thread(api, id, { limit: 5, depth: 2 })) {
        assert.ok(!found.has(comment.id), `comment ${comment.id} is reached twice`);
        assert.ok(comment.parent_id === null || found.has(comment.parent_id), `comment ${comment.id} comes before its parent`);
        found.add(comment.id);
      }
    });
    assert.deepEqual([...found].sort((a, b) => a - b), keys(comments));
  });

  await t.test("every liker is listed once", async () => {
    const likers = (path: "/v1/posts/{id}/likes" | "/v1/comments/{id}/likes", target: { id: number; likes_count: number }) =>
      awaitAll(target.likes_count, `likers of ${path} ${target.id}`, () =>
        once(
          items((cursor) => api.GET(path, { params: { path: { id: target.id }, query: { limit, cursor } } })),
          (liker) => liker.user.id,
        ),
      );
    const take = (found: Map<number, Schema<"Liker">>) => found.forEach(({ user }) => users.set(user.id, user.username));
    await each(posts.values(), async (post) => take(await likers("/v1/posts/{id}/likes", post)));
    await each(comments.values(), async (comment) => {
      if (comment.likes_count > 0) take(await likers("/v1/comments/{id}/likes", comment));
    });
  });

  await t.test("every post and comment is in the lists of its author", async () => {
    const postsFound = new Set<number>();
    const commentsFound = new Set<number>();
    await each(users, async ([id, username]) => {
      const params = { path: { id } };
      const user = await ok(api.GET("/v1/users/{id}", { params }));
      assert.equal(user.username, username);
      const written = await once(
        items((cursor) => api.GET("/v1/users/{id}/posts", { params: { ...params, query: { limit, cursor } } })),
        (post) => post.id,
      );
      const said = await once(
        items((cursor) => api.GET("/v1/users/{id}/comments", { params: { ...params, query: { limit, cursor } } })),
        (item) => item.comment.id,
      );
      assert.deepEqual([written.size, said.size], [user.posts_count, user.comments_count], `posts and comments of ${username}`);
      for (const [post, { author }] of written) {
        assert.equal(author.id, id);
        postsFound.add(post);
      }
      for (const [comment, { comment: { author } }] of said) {
        assert.equal(author?.id, id);
        commentsFound.add(comment);
      }
    });
    assert.equal(postsFound.size, posts.size);
    assert.equal(commentsFound.size, comments.size);
  });

  await t.test("every tag leads to its posts", async () => {
    const want = new Map<string, number>();
    for (const post of posts.values()) for (const tag of post.tags) want.set(tag, (want.get(tag) ?? 0) + 1);
    const tags = new Map<string, number>();
    for await (const tag of items((cursor) => api.GET("/v1/tags", { params: { query: { limit, cursor } } }))) {
      assert.ok(!tags.has(tag.name), `${tag.name} comes twice`);
      tags.set(tag.name, tag.posts_count);
    }
    assert.deepEqual(tags, want);
    await each(tags, async ([tag, n]) => {
      const tagged = await listPosts({ tag });
      assert.equal(tagged.size, n, tag);
      for (const post of tagged.values()) assert.ok(post.tags.includes(tag));
    });
  });
});

test("an account posts, likes, replies, edits and deletes", async () => {
  let token: string | undefined;
  const mine = createClient({ baseUrl: server!.url, token: () => token });
  const unnamed = await problemOf(ok(mine.POST("/v1/posts", { body: { title: "T", content: "C" } })));
  assert.deepEqual([unnamed.status, unnamed.code], [401, "unauthorized"]);

  const account = { username: "ada", email: "ada@example.org", password: "correct horse" };
  token = await register(mine, account);
  assert.equal((await ok(mine.GET("/v1/me"))).username, "ada");
  const taken = await problemOf(ok(mine.POST("/v1/auth/register", { body: account })));
  assert.deepEqual([taken.status, taken.problem?.errors?.[0]?.field], [409, "username"]);

  const invalid = await problemOf(ok(mine.POST("/v1/posts", { body: { title: " ", content: "C" } })));
  assert.deepEqual([invalid.status, invalid.code, invalid.problem?.errors?.map((e) => e.field)], [422, "invalid", ["title"]]);
  const created = await mine.POST("/v1/posts", { body: { title: "A title", content: "Some *content*." } });
  const post = await ok(Promise.resolve(created));
  assert.equal(created.response.headers.get("Location"), `/v1/posts/${post.id}`);
  const params = { path: { id: post.id } };

  for (let i = 0; i < 2; i++) {
    assert.deepEqual(await ok(mine.PUT("/v1/posts/{id}/like", { params })), { liked: true, likes_count: 1 });
  }
  assert.equal((await ok(mine.GET("/v1/posts/{id}", { params }))).liked, true);
  assert.equal((await ok(api.GET("/v1/posts/{id}", { params }))).liked, false);
  const [summary] = (await ok(api.GET("/v1/users/{id}/posts", { params: { path: { id: post.author.id } } }))).items;
  assert.ok(summary);
  assert.deepEqual([summary.excerpt, summary.last_commenter], ["Some content.", null]);
  assert.deepEqual(await ok(mine.DELETE("/v1/posts/{id}/like", { params })), { liked: false, likes_count: 0 });

  const comment = await ok(mine.POST("/v1/posts/{id}/comments", { params, body: { content: "A comment." } }));
  const reply = await ok(mine.POST("/v1/comments/{id}/replies", { params: { path: { id: comment.id } }, body: { content: "A reply." } }));
  assert.deepEqual([reply.post_id, reply.parent_id], [post.id, comment.id]);
  assert.equal((await ok(mine.PUT("/v1/comments/{id}/like", { params: { path: { id: reply.id } } }))).likes_count, 1);

  const read = await mine.GET("/v1/posts/{id}", { params });
  const tag = read.response.headers.get("ETag");
  assert.ok(tag);
  const edit = (content: string) => ok(mine.PATCH("/v1/posts/{id}", { params: { ...params, header: { "If-Match": tag } }, body: { content } }));
  const edited = await edit("Other content.");
  assert.deepEqual([edited.content, edited.version, edited.comments_count], ["Other content.", 1, 2]);
  const late = await problemOf(edit("Too late."));
  assert.deepEqual([late.status, late.code, late.problem?.version], [412, "precondition_failed", 1]);
  assert.equal((await ok(api.GET("/v1/posts/{id}", { params }))).content, "Other content.");

  await ok(mine.DELETE("/v1/comments/{id}", { params: { path: { id: comment.id } } }));
  const left = await ok(api.GET("/v1/posts/{id}/comments", { params }));
  assert.deepEqual(left.items.map((item) => [item.id, item.author, item.content]), [[comment.id, null, ""]], "a placeholder holds the reply");
  await ok(mine.DELETE("/v1/posts/{id}", { params }));
  const gone = await problemOf(ok(api.GET("/v1/posts/{id}", { params })));
  assert.deepEqual([gone.status, gone.code], [404, "not_found"]);

  await ok(mine.POST("/v1/auth/logout"));
  const ended = await problemOf(ok(mine.GET("/v1/me")));
  assert.deepEqual([ended.status, ended.code], [401, "unauthorized"]);
});

test("a stream sends the counts of a post, and what changes", async () => {
  const account = { username: "hypatia", email: "hypatia@example.org", password: "correct horse" };
  const token = await register(api, account);
  const mine = createClient({ baseUrl: server!.url, token: () => token });
  const { id } = await ok(mine.POST("/v1/posts", { body: { title: "A title", content: "Some content." } }));
  const counts: number[] = [];
  for await (const update of api.stream({ posts: [id] })) {
    assert.ok(update.event === "counts" && update.data.type === "post" && update.data.id === id);
    assert.ok(update.lastEventId);
    counts.push(update.data.likes_count);
    if (update.data.likes_count === 1) break;
    await ok(mine.PUT("/v1/posts/{id}/like", { params: { path: { id } } }));
  }
  assert.deepEqual(counts, [0, 1]);
  const nothing = await problemOf(api.stream({ posts: [999_999_999] }).next());
  assert.deepEqual([nothing.status, nothing.code], [404, "not_found"]);
});

test("a live stream follows what a page shows, while that changes", { timeout: 60_000 }, async () => {
  const account = { username: "emmy", email: "emmy@example.org", password: "correct horse" };
  const token = await register(api, account);
  const mine = createClient({ baseUrl: server!.url, token: () => token });
  const write = (title: string) => ok(mine.POST("/v1/posts", { body: { title, content: "Some content.", tags: ["live"] } }));
  const [first, second] = [await write("A title"), await write("Another title")];
  const live = mine.live();
  const updates: StreamUpdate[] = [];
  let wake = () => undefined as void;
  const until = async (holds: (update: StreamUpdate) => boolean) => {
    while (!updates.some(holds)) await new Promise<void>((resolve) => (wake = resolve));
  };
  const follower = live.follow({ posts: [first.id], notifications: true }, (update) => {
    updates.push(update);
    wake();
  });
  await until((u) => u.event === "counts" && u.data.id === first.id);
  await until((u) => u.event === "notifications" && u.data.unread_count === 0);
  follower.change({ threads: [second.id], tags: [" Live"], new_posts: true, notifications: true });
  await until((u) => u.event === "thread" && u.data.id === second.id && u.data.comment_ids.length === 0);
  await until((u) => u.event === "posts" && u.data.tag === "live" && u.data.post_ids[0] === second.id);
  await until((u) => u.event === "posts" && u.data.tag === null && u.data.post_ids[0] === second.id);
  const comment = await ok(
    mine.POST("/v1/posts/{id}/comments", { params: { path: { id: second.id } }, body: { content: "A comment." } }),
  );
  await until((u) => u.event === "thread" && u.data.comment_ids[0] === comment.id);
  live.close();
});

test("a drop is claimed until it is sold out", async () => {
  const join = async (username: string): Promise<Likewise> => {
    const account = { username, email: `${username}@example.org`, password: "correct horse" };
    const token = await register(api, account);
    return createClient({ baseUrl: server!.url, token: () => token });
  };
  const [author, first, second] = [await join("grace"), await join("alan"), await join("barbara")];
  const post = await ok(author.POST("/v1/posts", { body: { title: "A meeting", content: "There is one ticket." } }));
  const create = (client: Likewise, stock: number) =>
    client.POST("/v1/posts/{id}/drops", { params: { path: { id: post.id } }, body: { title: "A ticket", stock } });
  const forbidden = await problemOf(ok(create(first, 1)));
  assert.deepEqual([forbidden.status, forbidden.code], [403, "forbidden"]);
  const invalid = await problemOf(ok(create(author, 0)));
  assert.deepEqual([invalid.code, invalid.problem?.errors?.map((e) => e.field)], ["invalid", ["stock"]]);
  const created = await create(author, 1);
  const drop = await ok(Promise.resolve(created));
  assert.equal(created.response.headers.get("Location"), `/v1/drops/${drop.id}`);
  assert.deepEqual([drop.state, drop.remaining, drop.claim], ["open", 1, null]);

  const params = { path: { id: drop.id } };
  const claim = (client: Likewise) => client.POST("/v1/drops/{id}/claims", { params });
  const soldOut = async (client: Likewise) => {
    const refused = await problemOf(ok(claim(client)));
    assert.deepEqual([refused.status, refused.code], [409, "sold_out"]);
  };
  const claimed = await claim(first);
  const { id } = await ok(Promise.resolve(claimed));
  assert.equal(claimed.response.status, 201);
  assert.equal(typeof id, "string", "an id of 63 bits does not fit into a number");
  const repeated = await claim(first);
  assert.deepEqual([repeated.response.status, repeated.data?.id], [200, id]);
  await soldOut(second);
  const read = async (client: Likewise) => {
    const { state, claimed, remaining, claim } = await ok(client.GET("/v1/drops/{id}", { params }));
    return [state, claimed, remaining, claim?.id];
  };
  assert.deepEqual(await read(first), ["sold_out", 1, 0, id]);
  assert.deepEqual(await read(api), ["sold_out", 1, 0, undefined]);

  const mine = { path: { id } };
  for (const deadline = Date.now() + 30_000; ; await sleep(50)) {
    const { state } = await ok(first.GET("/v1/claims/{id}", { params: mine }));
    if (state === "confirmed") break;
    assert.ok(state === "reserved" && Date.now() < deadline, state);
  }
  for await (const held of items((cursor) => first.GET("/v1/me/claims", { params: { query: { cursor } } }))) {
    assert.deepEqual([held.id, held.drop_title, held.post_id], [id, "A ticket", post.id]);
  }
  const stranger = await problemOf(ok(second.GET("/v1/claims/{id}", { params: mine })));
  assert.deepEqual([stranger.status, stranger.code], [404, "not_found"]);

  for (let i = 0; i < 2; i++) await ok(first.DELETE("/v1/claims/{id}", { params: mine }));
  const taken = await ok(claim(second));
  assert.equal((await ok(first.GET("/v1/claims/{id}", { params: mine }))).state, "returned");
  await soldOut(first);

  const edit = (stock: number, tag: string | null) =>
    author.PATCH("/v1/drops/{id}", { params: { ...params, header: { "If-Match": tag ?? "" } }, body: { stock } });
  assert.equal((await ok(edit(2, created.response.headers.get("ETag")))).remaining, 1);
  const late = await problemOf(ok(edit(3, created.response.headers.get("ETag"))));
  assert.equal(late.code, "precondition_failed");
  assert.notEqual((await ok(claim(first))).id, id, "a new claim has a new id");

  assert.equal((await ok(author.POST("/v1/drops/{id}/close", { params }))).state, "ended");
  const over = await problemOf(ok(second.DELETE("/v1/claims/{id}", { params: { path: { id: taken.id } } })));
  assert.deepEqual([over.status, over.code], [403, "ended"]);
});
