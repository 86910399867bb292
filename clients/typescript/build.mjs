/**
 * Build the package: `dist/` (ES modules and their types) for npm, and a copy of the modules for the pages of `veil serve`.
 *
 * The copy is committed, since the server's package has to hold it, and it is whole: `digests/` holds the modules of
 * `@noble/hashes` that it uses, without their comments (NOTICE has its license). `built.json` says of which sources and of which
 * version the copy is, so that `tests/client/test_typescript.py` can tell without a compiler whether it is that of the present
 * ones. With the name of a folder, the copy is made there and nothing else is written.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const DIST = at("dist"), SOURCES = at("src"), NOBLE = at("node_modules/@noble/hashes");
const COPY = process.argv[2] ?? at("../../src/veil/server/static/client");

rmSync(DIST, { recursive: true, force: true });
execFileSync(process.execPath, [at("node_modules/typescript/bin/tsc"), "--project", at("tsconfig.json")], { stdio: "inherit" });
rmSync(COPY, { recursive: true, force: true });
cpSync(DIST, COPY, { recursive: true, filter: (path) => !path.endsWith(".d.ts") });
vendor();
if (process.argv[2] === undefined) note();

/** Copy the modules of `@noble/hashes` that `digests.js` imports, and those that they import, and have it import the copies. */
function vendor() {
  const door = readFileSync(`${COPY}/digests.js`, "utf8");
  writeFileSync(`${COPY}/digests.js`, door.replaceAll('"@noble/hashes/', '"./digests/'));
  const imported = (text) => [...text.matchAll(/from ["'](?:@noble\/hashes|\.)\/([^"']+)["']/g)].map((match) => match[1]);
  const left = imported(door), seen = new Set();
  const served = (name) => name.replace(/^_/, ""); // `veil serve` gives nobody a file whose name begins so
  mkdirSync(`${COPY}/digests`);
  while (left.length > 0) {
    const name = left.pop();
    if (seen.has(name)) continue;
    seen.add(name);
    const compilerOptions = { target: "ES2022", module: "ES2022", removeComments: true };
    const text = ts.transpileModule(readFileSync(`${NOBLE}/${name}`, "utf8"), { compilerOptions }).outputText;
    left.push(...imported(text));
    writeFileSync(`${COPY}/digests/${served(name)}`, text.replace(/(from ["']\.\/)([^"']+)/g, (_, before, other) => before + served(other)));
  }
}

/** Write which sources and which version of `@noble/hashes` the copy is of. */
function note() {
  const digest = (name) => createHash("sha256").update(readFileSync(`${SOURCES}/${name}`)).digest("hex");
  const names = readdirSync(SOURCES, { recursive: true }).map((name) => name.replaceAll("\\", "/"));
  const built = Object.fromEntries(names.filter((name) => name.endsWith(".ts")).sort().map((name) => [name, digest(name)]));
  built["@noble/hashes"] = JSON.parse(readFileSync(`${NOBLE}/package.json`, "utf8")).version;
  writeFileSync(at("built.json"), `${JSON.stringify(built, null, 1)}\n`);
}
