import type { Likewise } from "./client.js";
import { ok } from "./error.js";
import type { Cursor, Data, Result, Schema } from "./types.js";

/** A page of a list. */
interface Page<Item> {
  items: Item[];
  next_cursor: string | null;
}

/**
 * Iterates over the pages of a list. The next page is requested when the previous one is used up. `page` requests the
 * page at a cursor, undefined for the first.
 */
export async function* pages<Item>(
  page: (cursor: string | undefined) => Promise<Result<Page<Item>>>,
): AsyncGenerator<Page<Item>, void, undefined> {
  let cursor: string | undefined;
  do {
    const read: Page<Item> = await ok(page(cursor));
    yield read;
    cursor = read.next_cursor ?? undefined;
  } while (cursor !== undefined);
}

/** Iterates over every item of a list, as `pages` does over its pages. */
export async function* items<Item>(
  page: (cursor: string | undefined) => Promise<Result<Page<Item>>>,
): AsyncGenerator<Item, void, undefined> {
  for await (const { items } of pages(page)) yield* items;
}

export interface ThreadOptions {
  /** `old`: in the order written. `new`: latest first. `top`: most likes first. */
  sort?: "old" | "new" | "top";
  /** How many comments are read at once. */
  limit?: number;
  /** How many levels are read at once. */
  depth?: number;
  signal?: AbortSignal;
}

type Thread = Data<"/v1/posts/{id}/thread", "GET">;
type Comment = Schema<"Comment">;

/**
 * Iterates over every comment of a post and its replies: each parent before its replies, and these before the parent's
 * next sibling. `comment.depth` is 1 at the top level. What the server cuts from its trees is requested when it is due.
 */
export async function* thread(
  api: Pick<Likewise, "GET">,
  post: number,
  { sort, limit, depth, signal }: ThreadOptions = {},
): AsyncGenerator<Comment, void, undefined> {
  const path = { id: post };
  const more = (cursor?: Cursor<"/v1/posts/{id}/thread">): Promise<Thread> =>
    ok(api.GET("/v1/posts/{id}/thread", { params: { path, query: { sort, limit, depth, cursor } }, signal }));
  yield* walk(await more(), more);

  async function* walk(
    list: { items: Comment[]; next_cursor: string | null },
    next: (cursor: string) => Promise<typeof list>,
  ): AsyncGenerator<Comment, void, undefined> {
    for (;;) {
      for (const comment of list.items) {
        yield comment;
        if (comment.replies) {
          yield* walk(comment.replies, (cursor) =>
            ok(api.GET("/v1/comments/{id}/replies", { params: { path: { id: comment.id }, query: { limit, cursor } }, signal })),
          );
        }
      }
      if (list.next_cursor === null) return;
      list = await next(list.next_cursor);
    }
  }
}
