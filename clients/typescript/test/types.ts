// What the compiler must refuse. It is compiled, and not run.
import { createClient, type Cursor } from "likewise-client";

const api = createClient({ baseUrl: "http://127.0.0.1" });
const posts: Cursor<"/v1/posts"> = "text of an address bar";

export const calls = [
  () => api.GET("/v1/posts", { params: { query: { cursor: posts } } }),
  // @ts-expect-error a cursor of another list
  () => api.GET("/v1/tags", { params: { query: { cursor: posts } } }),
  // @ts-expect-error no such path
  () => api.GET("/v1/nothing"),
  // @ts-expect-error no such operation
  () => api.DELETE("/v1/posts"),
  // @ts-expect-error the id is missing
  () => api.GET("/v1/posts/{id}"),
  // @ts-expect-error the body is missing
  () => api.POST("/v1/auth/login"),
  // @ts-expect-error not an order
  () => api.GET("/v1/posts", { params: { query: { sort: "best" } } }),
  // @ts-expect-error a GET has no body
  () => api.GET("/v1/posts", { body: {} }),
  // @ts-expect-error no such kind of target
  () => api.stream({ post: [1] }),
  // @ts-expect-error the tags have names
  () => api.live().follow({ tags: [1] }, () => undefined),
  async () => {
    for await (const update of api.stream({ notifications: true, threads: [1] })) {
      if (update.event === "notifications") console.log(update.data.unread_count, update.data.items[0]?.excerpt);
      if (update.event === "thread") console.log(update.data.comment_ids.length, update.data.drop_ids.length);
      // @ts-expect-error the id of a stream is not an update
      if (update.event === "stream") return;
    }
  },
  async () => {
    const { data } = await api.GET("/v1/tags");
    const name: string | undefined = data?.items[0]?.name;
    // @ts-expect-error a tag has no title
    return [name, data?.items[0]?.title];
  },
];
