// Prints the newest posts with a tag, and then every comment of the first: node dist/examples/feed.js URL TAG
import { createClient, items, thread } from "likewise-client";

const [, , baseUrl = "http://127.0.0.1:8080", tag] = process.argv;
const api = createClient({ baseUrl });

let first: number | undefined;
for await (const post of items((cursor) => api.GET("/v1/posts", { params: { query: { sort: "new", tag, cursor } } }))) {
  first ??= post.id;
  console.log(`${post.likes_count} likes  ${post.title}`);
}
if (first !== undefined) {
  for await (const comment of thread(api, first)) {
    console.log(`${"  ".repeat(comment.depth)}${comment.author?.username ?? "[deleted]"}: ${comment.content}`);
  }
}
