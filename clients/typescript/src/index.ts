export type { components, operations, paths } from "./schema.js";
export type { Call, CallOptions, Cursor, Data, Init, Method, Operation, PathOf, Result, Schema } from "./types.js";
export { createClient, type Likewise, type Options } from "./client.js";
export { LikewiseError, ok } from "./error.js";
export { type RetryOptions } from "./retry.js";
export { type Follower, LiveStream, type LiveOptions } from "./live.js";
export {
  type Counts,
  type Gone,
  type PostNews,
  type StreamOptions,
  type StreamTargets,
  type StreamUpdate,
  type ThreadNews,
  type UnreadNews,
} from "./stream.js";
export { items, pages, thread, type ThreadOptions } from "./walk.js";
