import type { Result, Schema } from "./types.js";

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
    return retryAfter(this.response);
  }
}

/** Returns the data of a call, or throws a LikewiseError if the answer is an error. */
export async function ok<Data>(call: Promise<Result<Data>>): Promise<Data> {
  const { data, error, response } = await call;
  if (!response.ok) throw new LikewiseError(response, isProblem(error) ? error : undefined);
  return data as Data;
}

export function isProblem(error: unknown): error is Schema<"Problem"> {
  return typeof error === "object" && error !== null && "code" in error && "request_id" in error;
}

/** Returns the seconds of Retry-After, which is a number or a date (RFC 9110). */
export function retryAfter(response: Response): number | undefined {
  const header = response.headers.get("Retry-After");
  if (header === null) return undefined;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}
