// Logs in, writes a post, likes it and edits it: node dist/examples/write.js URL NAME PASSWORD
import { createClient, LikewiseError, ok } from "likewise-client";

const [, , baseUrl = "http://127.0.0.1:8080", login = "ada", password = ""] = process.argv;
let token: string | undefined;
const api = createClient({ baseUrl, token: () => token });

({ token } = await ok(api.POST("/v1/auth/login", { body: { login, password } })));
const created = await ok(api.POST("/v1/posts", { body: { title: "From a script", content: "It *works*.", tags: ["meta"] } }));
const params = { path: { id: created.id } };
console.log(await ok(api.PUT("/v1/posts/{id}/like", { params })));

// An edit sends the ETag of the version that was read.
const { response } = await api.GET("/v1/posts/{id}", { params });
try {
  const ifMatch = { "If-Match": response.headers.get("ETag") ?? "" };
  const edited = await ok(
    api.PATCH("/v1/posts/{id}", { params: { ...params, header: ifMatch }, body: { title: "From a better script" } }),
  );
  console.log("version", edited.version);
} catch (err) {
  if (err instanceof LikewiseError && err.code === "precondition_failed") console.log("somebody else edited it meanwhile");
  else throw err;
}
