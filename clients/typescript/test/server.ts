import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const root = fileURLToPath(new URL("../../../../", import.meta.url)); // of the repository, from dist/test
const binary = process.env["LIKEWISE_BIN"] ?? join(root, "bin/likewise");

/** The whole site if LIKEWISE_DUMP names it or it lies beside the checkout, else the extract that all tests use. */
export const dump =
  process.env["LIKEWISE_DUMP"] ??
  [join(root, "../shared/data/quantumcomputing.stackexchange")].find((dir) => existsSync(dir)) ??
  join(root, "cmd/likewise/stackexchange/testdata/quantumcomputing.stackexchange");

/** The numbers that an import prints. */
export interface Imported {
  users: number;
  posts: number;
  comments: number;
  postLikes: number;
  commentLikes: number;
}

/** A private forum on a free port: `likewise dev` in a new folder. */
export class Server {
  private constructor(
    readonly url: string,
    private readonly process: ChildProcess,
    private readonly dir: string,
  ) {}

  static async start(): Promise<Server> {
    const dir = await mkdtemp(join(tmpdir(), "likewise-client-"));
    const args = ["dev", "--empty", "--data", join(dir, "data"), "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0"];
    const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    const ready = new Promise<string>((resolve, reject) => {
      const hear = (chunk: Buffer) => {
        said += chunk.toString();
        const url = /API +(http:\/\/\S+)\/v1\/posts\n/.exec(said)?.[1];
        if (url && said.includes("Stop it with Ctrl-C")) resolve(url);
      };
      child.stdout.on("data", hear);
      child.stderr.on("data", hear); // keep reading: a full pipe would block the server
      child.on("error", reject);
      child.on("exit", () => reject(new Error(`likewise dev ended before it was ready:\n${said}`)));
    });
    return new Server(await ready, child, dir);
  }

  /** Imports the dump. */
  async import(): Promise<Imported> {
    const env = { ...process.env };
    for (const line of (await readFile(join(this.dir, "data", "dev.env"), "utf8")).split("\n")) {
      const setting = /^(LIKEWISE_\w+)='?(.*?)'?$/.exec(line);
      if (setting) env[setting[1]!] = setting[2]!;
    }
    const { stdout } = await promisify(execFile)(binary, ["import", "stackexchange", dump], { env, maxBuffer: 1 << 24 });
    const created = (what: string) => {
      const row = new RegExp(`^ *${what} +[\\d,]+ +([\\d,]+) `, "m").exec(stdout);
      if (!row) throw new Error(`the import does not tell how many ${what} it made:\n${stdout}`);
      return Number(row[1]!.replaceAll(",", ""));
    };
    return {
      users: created("users"),
      posts: created("posts"),
      comments: created("comments"),
      postLikes: created("post likes"),
      commentLikes: created("comment likes"),
    };
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null) {
      const ended = once(this.process, "exit");
      this.process.kill("SIGTERM");
      await ended;
    }
    await rm(this.dir, { recursive: true, force: true });
    if (this.process.exitCode !== 0) throw new Error(`likewise dev ended with ${this.process.exitCode ?? this.process.signalCode}`);
  }
}
