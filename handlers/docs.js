"use strict";

SwaggerUIBundle({
  url: "openapi.yaml",
  dom_id: "#docs",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  filter: true,
  validatorUrl: null, // the default asks another host
  presets: [SwaggerUIBundle.presets.apis],
});
