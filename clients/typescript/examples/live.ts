// Prints the likes of posts as they change, until Ctrl-C: node dist/examples/live.js URL ID...
import { createClient } from "likewise-client";

const [, , baseUrl = "http://127.0.0.1:8080", ...ids] = process.argv;
const stop = new AbortController();
process.once("SIGINT", () => stop.abort());

for await (const update of createClient({ baseUrl }).stream({ posts: ids.map(Number) }, { signal: stop.signal })) {
  if (update.event === "counts" && update.data.type === "post") console.log(update.data.id, update.data.likes_count);
}
