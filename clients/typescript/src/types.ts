import type { components, paths } from "./schema.js";

/** The JSON of the API by name, such as `Schema<"Post">`. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** The paths that have an operation of a method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<Lowercase<M>, { responses: unknown }> ? P : never;
}[keyof paths];

/** The operation of a path and a method, as the contract describes it. */
export type Operation<P extends keyof paths, M extends Method> = paths[P][Lowercase<M> & keyof paths[P]];

declare const list: unique symbol;

/**
 * The place at which a page of a list begins. It is valid for the list that it came from, and the compiler refuses it
 * for another list. Any string is accepted, such as one from an address bar.
 */
export type Cursor<P> = string & { readonly [list]?: P };

type WithCursor<P, Query> = Query extends object
  ? "cursor" extends keyof Query
    ? Omit<Query, "cursor"> & { cursor?: Cursor<P> | undefined }
    : Query
  : Query;

type WithNextCursor<P, Data> = Data extends { next_cursor: string | null }
  ? Omit<Data, "next_cursor"> & { next_cursor: Cursor<P> | null }
  : Data;

type IsNever<T> = [T] extends [never] ? true : false;

type ParametersOf<P, Op> = Op extends { parameters: infer All }
  ? { [In in keyof All as IsNever<NonNullable<All[In]>> extends true ? never : In]: WithCursor<P, All[In]> }
  : unknown;

type Content<Op> = Op extends { requestBody?: infer Body } ? (NonNullable<Body> extends { content: infer C } ? C : never) : never;

type BodyOf<Op> = IsNever<Content<Op>> extends true
  ? { body?: never }
  : Op extends { requestBody: object }
    ? { body: Input<Content<Op>> }
    : { body?: Input<Content<Op>> | undefined };

type Input<C> = C extends { "application/json": infer Body } ? Body : NonNullable<RequestInit["body"]>;

type RequiredKeys<T> = { [K in keyof T]-?: object extends Pick<T, K> ? never : K }[keyof T];

type ParamsOf<Params> = IsNever<RequiredKeys<Params>> extends true ? { params?: Params } : { params: Params };

export interface CallOptions {
  /** Further headers. */
  headers?: Record<string, string>;
  /** Ends the call, and the waits between its attempts. */
  signal?: AbortSignal | null | undefined;
}

/** What a call takes besides its path. */
export type Init<P extends keyof paths, M extends Method> = ParamsOf<ParametersOf<P, Operation<P, M>>> &
  BodyOf<Operation<P, M>> &
  CallOptions;

type Success = 200 | 201 | 202 | 203 | 204 | 205 | 206;

type Output<Answer> = Answer extends { content: infer C }
  ? C extends { "application/json": infer Data }
    ? Data
    : keyof C extends `text/${string}` | "application/yaml"
      ? string
      : Blob
  : undefined;

/** The data of a successful answer. */
export type Data<P extends keyof paths, M extends Method> = Operation<P, M> extends { responses: infer All }
  ? { [Status in keyof All & Success]: WithNextCursor<P, Output<All[Status]>> }[keyof All & Success]
  : never;

/** The result of a call: data, or an error in its place. */
export type Result<Data> =
  | { data: Data; error?: never; response: Response }
  | { data?: never; error: unknown; response: Response };

/** A call of the API by a method: `api.GET("/v1/posts/{id}", { params: { path: { id: 1 } } })`. */
export type Call<M extends Method> = <P extends PathOf<M>>(
  path: P,
  ...init: IsNever<RequiredKeys<Init<P, M>>> extends true ? [init?: Init<P, M>] : [init: Init<P, M>]
) => Promise<Result<Data<P, M>>>;
