// Uses the client that openapi-generator generates for TypeScript, at the URL of its argument.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import * as api from "./api";

const [basePath, run] = [process.argv[2]!, Date.now().toString(36)];
const word = `word${run}`;

async function account(name: string) {
  const registration = { username: name, email: `${name}@likewise.example`, password: "a walk of clients" };
  const { token } = await new api.AccountsApi(new api.Configuration({ basePath })).register({ registration });
  return new api.Configuration({ basePath, accessToken: token });
}

async function problem(call: Promise<unknown>): Promise<api.Problem> {
  try {
    await call;
  } catch (err) {
    assert.ok(err instanceof api.ResponseError, String(err));
    return api.ProblemFromJSON(await err.response.json());
  }
  assert.fail("it was not refused");
}

async function main() {
  const [ada, bob] = [await account(`ada-${run}`), await account(`bob-${run}`)];
  const post = await new api.PostsApi(ada).createPost({
    postInput: { title: "A walk", content: `The word is ${word}.` },
    idempotencyKey: randomUUID(),
  });
  const { id } = post;
  const comment = await new api.CommentsApi(bob).createComment({ id, commentInput: { content: "Hello." } });
  assert.equal(comment.parentId, null);
  const like = await new api.LikesApi(bob).likePost({ id });
  assert.deepEqual(like, { liked: true, likesCount: 1 });

  const page = await new api.PostsApi(bob).listPosts({ sort: "new", limit: 1 });
  const item = page.items[0]!;
  assert.ok("excerpt" in item && item.id === id && item.liked && item.createdAt instanceof Date);
  const found = await new api.PostsApi(bob).listPosts({ q: word });
  assert.deepEqual([found.items.map((each) => each.id), found.nextCursor], [[id], null]);

  const report = await new api.ReportsApi(bob).reportContent({ reportInput: { targetType: "post", targetId: id, reason: "spam" } });
  assert.equal(report.outcome, null);
  const drop = await new api.DropsApi(ada).createDrop({ id, dropInput: { title: "A ticket", stock: 1 } });
  const claim = await new api.ClaimsApi(bob).createClaim({ id: drop.id });
  assert.equal(claim.dropId, drop.id);
  assert.equal((await problem(new api.ClaimsApi(ada).createClaim({ id: drop.id }))).code, "sold_out");

  const refused = await problem(new api.PostsApi(ada).createPost({ postInput: { title: "", content: "C" } }));
  assert.deepEqual([refused.errors?.[0]?.field, refused.errors?.[0]?.code], ["title", "required"]);
  const edited = await new api.PostsApi(ada).editPost({ id, ifMatch: '"v0"', postEdit: { title: "A longer walk" } });
  assert.equal(edited.version, 1);
}

void main();
