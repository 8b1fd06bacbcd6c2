import createFetchClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

/** The JSON of the API by name, such as `Schema<"Post">`. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

/** A typed `fetch`: `api.GET("/v1/posts/{id}", { params: { path: { id: 1 } } })`. */
export type Likewise = Client<paths, "application/json">;

export interface Options {
  /** Where the API is, without `/v1`, such as `https://forum.example`. */
  baseUrl: string;
  /** Gives the token to call with, at every call; without one the call is anonymous. */
  token?: () => string | undefined;
  /** What to call with in place of the global `fetch`. */
  fetch?: (request: Request) => Promise<Response>;
}

export function createClient({ baseUrl, token, fetch }: Options): Likewise {
  const api = createFetchClient<paths, "application/json">({ baseUrl, ...(fetch && { fetch }) });
  api.use({
    onRequest({ request }) {
      const current = token?.();
      if (current !== undefined) request.headers.set("Authorization", `Bearer ${current}`);
      return request;
    },
  });
  return api;
}

/** An answer that says no. */
export class LikewiseError extends Error {
  override readonly name = "LikewiseError";

  constructor(
    readonly response: Response,
    /** What went wrong, or undefined if something else than the API answered, such as a proxy. */
    readonly problem: Schema<"Problem"> | undefined,
  ) {
    super(problem ? `${problem.code}: ${problem.detail}` : `HTTP ${response.status}`);
  }

  get status(): number {
    return this.response.status;
  }

  /** What to tell problems apart by. */
  get code(): Schema<"Problem">["code"] | undefined {
    return this.problem?.code;
  }

  /** After how many seconds to try again, if the answer says so. */
  get retryAfter(): number | undefined {
    const seconds = Number(this.response.headers.get("Retry-After") ?? NaN);
    return Number.isFinite(seconds) ? seconds : undefined;
  }
}

/** What every call gives: data, or an error in its place. */
type Result<Data> =
  | { data: Data; error?: never; response: Response }
  | { data?: never; error: unknown; response: Response };

type DataOf<R> = R extends { data: infer Data; error?: never } ? Data : never;

/** The data of a call; an answer that is an error is thrown as a LikewiseError. */
export async function ok<R extends Result<unknown>>(call: Promise<R>): Promise<DataOf<R>> {
  const { data, error, response } = await call;
  if (!response.ok) throw new LikewiseError(response, isProblem(error) ? error : undefined);
  return data as DataOf<R>;
}

function isProblem(error: unknown): error is Schema<"Problem"> {
  return typeof error === "object" && error !== null && "code" in error && "request_id" in error;
}

/** A page of a list. */
type Page<Item> = { items: Item[]; next_cursor: string | null };

/**
 * Every item of a list, page after page; the next page is asked for when the one before is used up. `page` asks for
 * the page at a cursor, undefined for the first.
 */
export async function* items<Item>(page: (cursor: string | undefined) => Promise<Result<Page<Item>>>): AsyncGenerator<Item, void, undefined> {
  let cursor: string | undefined;
  do {
    const { items, next_cursor }: Page<Item> = await ok(page(cursor));
    yield* items;
    cursor = next_cursor ?? undefined;
  } while (cursor !== undefined);
}
