// The licences of what others wrote and the page's files hold, in a file beside them.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import type { Plugin } from "vite";

/** A package's folder, before the last of its file's names; Vite's own modules begin with a null character. */
const PACKAGE = /^[^\0]*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;
const NOTICE = /^(licen[sc]e|copying|notice|copyright)/i;

/** Scripts by their modules, fonts by the files they come from; a package without a licence's text stops the build. */
export function licenses(fileName: string): Plugin {
  return {
    name: "licenses",
    apply: "build",
    generateBundle(_, bundle) {
      const files = Object.values(bundle).flatMap((made) =>
        made.type === "chunk" ? made.moduleIds : made.originalFileNames.map((name) => join(import.meta.dirname, name)),
      );
      const folders = new Set(files.flatMap((file) => PACKAGE.exec(file) ?? []));
      this.emitFile({ type: "asset", fileName, source: [...folders].sort().map(notices).join("\n") });
    },
  };
}

function notices(folder: string): string {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const names = readdirSync(folder).filter((file) => NOTICE.test(file)).sort();
  if (!names.length) throw new Error(`${name} has no file of its licence, which the page's files must hold`);
  const texts = names.map((file) => readFileSync(join(folder, file), "utf8").trim());
  return [`${"=".repeat(80)}\n${name} ${version} (${license})\n${"=".repeat(80)}`, ...texts].join("\n\n") + "\n";
}
