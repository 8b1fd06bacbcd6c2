import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const client = fileURLToPath(new URL("../../", import.meta.url)); // the package, from dist/test
const tsc = join(client, "node_modules/typescript/bin/tsc");

let dir: string; // an empty folder with the package installed
let packed: string[]; // the files in the tarball

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "likewise-package-"));
  // Without scripts: the build that runs before the tests is what prepack does, too.
  const { stdout } = await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", dir], { cwd: client });
  const [tarball] = JSON.parse(stdout) as [{ filename: string; files: { path: string }[] }];
  packed = tarball.files.map((file) => file.path);
  await writeFile(join(dir, "package.json"), `{ "private": true, "type": "module" }`);
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(dir, tarball.filename)], { cwd: dir });
});
after(() => rm(dir, { recursive: true, force: true }));

test("the tarball has the built client with its types, and nothing else", () => {
  const others = packed.filter((path) => !/^dist\/src\/\w+\.(js|d\.ts)$/.test(path));
  assert.deepEqual(others.sort(), ["README.md", "package.json"]);
  for (const name of ["index", "client", "schema", "stream", "walk"]) {
    assert.ok(packed.includes(`dist/src/${name}.js`), `${name}.js is missing`);
    assert.ok(packed.includes(`dist/src/${name}.d.ts`), `${name}.d.ts is missing`);
  }
});

test("the package can be published", async () => {
  const info = JSON.parse(await readFile(join(client, "package.json"), "utf8")) as Record<string, unknown>;
  assert.match(String(info["name"]), /^[a-z-]+$/);
  assert.match(String(info["version"]), /^\d+\.\d+\.\d+$/);
  assert.equal(info["private"], undefined);
  assert.equal(info["type"], "module");
  assert.equal(info["sideEffects"], false);
  assert.deepEqual(info["engines"], { node: ">=18" });
  assert.deepEqual(info["publishConfig"], { access: "public", provenance: true });
  assert.equal(info["dependencies"], undefined);
});

test("a program in another folder uses the package", async () => {
  const server = createServer((_, response) => {
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ items: [{ id: 7 }], next_cursor: null }));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  try {
    await writeFile(
      join(dir, "program.js"),
      `import { createClient, items } from "likewise-client";
      const api = createClient({ baseUrl: process.argv[2] });
      for await (const post of items((cursor) => api.GET("/v1/posts", { params: { query: { cursor } } }))) {
        console.log(post.id);
      }`,
    );
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    assert.equal((await run(process.execPath, ["program.js", url], { cwd: dir })).stdout, "7\n");
  } finally {
    server.close();
  }
});

/** Checks a program against the types of the package, and returns what the compiler prints; "" if they fit. */
async function check(name: string, text: string, ...options: string[]): Promise<string> {
  await writeFile(join(dir, name), text);
  const strict = ["--noEmit", "--strict", "--target", "ES2022", "--lib", "ES2022,DOM,DOM.Iterable"];
  try {
    return (await run(process.execPath, [tsc, ...strict, ...options, name], { cwd: dir })).stdout;
  } catch (err) {
    return (err as { stdout: string }).stdout;
  }
}

const program = `
import { createClient, items, LikewiseError, ok, type Schema } from "likewise-client";

const api = createClient({ baseUrl: "https://forum.example" });
const titles: string[] = [];
for await (const post of items((cursor) => api.GET("/v1/me/unread", { params: { query: { cursor } } }))) {
  titles.push(post.title);
  const summary: Schema<"PostSummary"> = post;
  const unread: number | null = summary.unread_count;
  console.log(unread);
}
try {
  await ok(api.POST("/v1/posts", { body: { title: titles.join(), content: "" } }));
} catch (err) {
  if (err instanceof LikewiseError) console.log(err.code);
}
`;

for (const resolution of [["NodeNext", "NodeNext"], ["ESNext", "Bundler"]] as const) {
  const options = ["--module", resolution[0], "--moduleResolution", resolution[1]];
  test(`a program gets the types of the package with ${resolution[1]}`, async () => {
    assert.equal(await check("right.ts", program, ...options), "");
    const wrong = await check("wrong.ts", program.replace("post.title", "post.titel"), ...options);
    assert.match(wrong, /^wrong\.ts\(7,20\): error TS2551: Property 'titel' does not exist/);
  });
}
