// Uses the client that @hey-api/openapi-ts generates, at the URL of its argument.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import * as api from "./api";
import { createClient } from "./api/client";

const [baseUrl, run] = [process.argv[2]!, Date.now().toString(36)];
const word = `word${run}`;

async function account(name: string) {
  const body = { username: name, email: `${name}@likewise.example`, password: "a walk of clients" };
  const { data } = await api.register({ client: createClient({ baseUrl }), body, throwOnError: true });
  assert.ok("token" in data, "a site that verifies addresses first answers without a session");
  return createClient({ baseUrl, auth: data.token });
}

async function main() {
  const [ada, bob] = [await account(`ada-${run}`), await account(`bob-${run}`)];
  const { data: post } = await api.createPost({
    client: ada,
    body: { title: "A walk", content: `The word is ${word}.` },
    headers: { "Idempotency-Key": randomUUID() },
    throwOnError: true,
  });
  const path = { id: post.id };
  const { data: comment } = await api.createComment({ client: bob, path, body: { content: "Hello." }, throwOnError: true });
  assert.equal(comment.parent_id, null);
  const { data: like } = await api.likePost({ client: bob, path, throwOnError: true });
  assert.deepEqual(like, { liked: true, likes_count: 1 });

  const { data: page } = await api.listPosts({ client: bob, query: { sort: "new", limit: 1 }, throwOnError: true });
  const item = page.items[0]!;
  assert.ok("excerpt" in item && item.id === post.id && item.liked);
  const { data: found } = await api.listPosts({ client: bob, query: { q: word }, throwOnError: true });
  assert.deepEqual([found.items.map((each) => each.id), found.next_cursor], [[post.id], null]);

  const { data: report } = await api.reportContent({
    client: bob,
    body: { target_type: "post", target_id: post.id, reason: "spam" },
    throwOnError: true,
  });
  assert.equal(report.outcome, null);
  const { data: drop } = await api.createDrop({ client: ada, path, body: { title: "A ticket", stock: 1 }, throwOnError: true });
  const { data: claim } = await api.createClaim({ client: bob, path: { id: drop.id }, throwOnError: true });
  assert.equal(claim.drop_id, drop.id);
  const soldOut = await api.createClaim({ client: ada, path: { id: drop.id } });
  assert.equal(soldOut.error?.code, "sold_out");

  const refused = await api.createPost({ client: ada, body: { title: "", content: "C" } });
  assert.deepEqual([refused.error?.errors?.[0]?.field, refused.error?.errors?.[0]?.code], ["title", "required"]);
  const edited = await api.editPost({ client: ada, path, headers: { "If-Match": '"v0"' }, body: { title: "A longer walk" } });
  assert.equal(edited.data?.version, 1);
}

void main();
