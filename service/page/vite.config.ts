import { defineConfig } from "vite";

import { licenses } from "./licenses.ts";

export default defineConfig({
  base: "/page/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [licenses("third-party-licenses.txt")],
  build: {
    assetsDir: "",
    // A file of its own each: the Content-Security-Policy takes no fonts from data: addresses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // Apart from where the server reads: page_build.py takes it over when it is whole.
    outDir: "dist",
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8000", "/openapi.json": "http://127.0.0.1:8000" } },
});
