"use strict";

// Swagger UI fills the field of a parameter with its example or its default, and sends it. This plugin moves both of
// each optional parameter into its description, so that the field is empty, and a list needs no edit to be read.
const emptyFields = {
  statePlugins: {
    spec: {
      wrapActions: {
        updateJsonSpec: (update) => (contract) => {
          const named = Object.values(contract.components.parameters);
          const own = Object.values(contract.paths).flatMap((path) =>
            [path, ...Object.values(path)].flatMap((part) => part.parameters ?? []));
          for (const parameter of [...named, ...own]) {
            if (!parameter.$ref && !parameter.required) emptyField(parameter, contract);
          }
          return update(contract);
        },
      },
    },
  },
};

function emptyField(parameter, contract) {
  const { $ref, ...beside } = parameter.schema;
  const referred = $ref?.slice(2).split("/").reduce((node, key) => node[key], contract); // "#/components/schemas/…"
  const { example, default: byDefault, ...schema } = { ...referred, ...beside };
  const shown = parameter.example ?? example;
  if (shown !== undefined) parameter.description += `\n\nExample: \`${shown}\``;
  if (byDefault !== undefined) parameter.description += `\n\nDefault: \`${byDefault}\``;
  parameter.schema = schema;
  delete parameter.example;
}

// withKey sets a new key on each POST, unless the visitor has entered one.
function withKey(request) {
  if (request.method === "POST") {
    // Not crypto.randomUUID, which browsers have over HTTPS only.
    const random = crypto.getRandomValues(new Uint8Array(16));
    request.headers["Idempotency-Key"] ??= Array.from(random, (b) => b.toString(16).padStart(2, "0")).join("");
  }
  return request;
}

SwaggerUIBundle({
  url: "openapi.yaml",
  dom_id: "#docs",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  filter: true,
  validatorUrl: null, // the default asks another host
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [emptyFields],
  requestInterceptor: withKey,
});
