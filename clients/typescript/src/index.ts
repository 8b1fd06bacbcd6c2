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
  /** Returns the token for a call; undefined makes the call anonymous. */
  token?: () => string | undefined;
  /** Replaces the global `fetch`. */
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

/** An answer that is an error. */
export class LikewiseError extends Error {
  override readonly name = "LikewiseError";

  constructor(
    readonly response: Response,
    /** The problem, or undefined if the answer is not from the API but, for example, from a proxy. */
    readonly problem: Schema<"Problem"> | undefined,
  ) {
    super(problem ? `${problem.code}: ${problem.detail}` : `HTTP ${response.status}`);
  }

  get status(): number {
    return this.response.status;
  }

  /** The stable code of the problem, to branch on. */
  get code(): Schema<"Problem">["code"] | undefined {
    return this.problem?.code;
  }

  /** The seconds to wait before a retry, if the answer has them. */
  get retryAfter(): number | undefined {
    const seconds = Number(this.response.headers.get("Retry-After") ?? NaN);
    return Number.isFinite(seconds) ? seconds : undefined;
  }
}

/** The result of a call: data, or an error in its place. */
type Result<Data> =
  | { data: Data; error?: never; response: Response }
  | { data?: never; error: unknown; response: Response };

type DataOf<R> = R extends { data: infer Data; error?: never } ? Data : never;

/** Returns the data of a call, or throws a LikewiseError if the answer is an error. */
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
 * Iterates over every item of a list. The next page is requested when the previous one is used up. `page` requests the
 * page at a cursor, undefined for the first.
 */
export async function* items<Item>(page: (cursor: string | undefined) => Promise<Result<Page<Item>>>): AsyncGenerator<Item, void, undefined> {
  let cursor: string | undefined;
  do {
    const { items, next_cursor }: Page<Item> = await ok(page(cursor));
    yield* items;
    cursor = next_cursor ?? undefined;
  } while (cursor !== undefined);
}
