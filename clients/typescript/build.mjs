/**
 * Build the package: `dist/` (ES modules and their types) for npm, and a copy of the modules for the pages of `veil serve`.
 *
 * The copy is committed, since the server's package has to hold it. `built.json` says of which sources it is, so that
 * `tests/client/test_typescript.py` can tell without a compiler whether it is that of the present ones.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const DIST = at("dist"), COPY = at("../../src/veil/server/static/client"), SOURCES = at("src");

rmSync(DIST, { recursive: true, force: true });
execFileSync(process.execPath, [at("node_modules/typescript/bin/tsc"), "--project", at("tsconfig.json")], { stdio: "inherit" });
rmSync(COPY, { recursive: true, force: true });
cpSync(DIST, COPY, { recursive: true, filter: (path) => !path.endsWith(".d.ts") });
const digest = (name) => createHash("sha256").update(readFileSync(`${SOURCES}/${name}`)).digest("hex");
const names = readdirSync(SOURCES, { recursive: true }).map((name) => name.replaceAll("\\", "/"));
const built = Object.fromEntries(names.filter((name) => name.endsWith(".ts")).sort().map((name) => [name, digest(name)]));
writeFileSync(at("built.json"), `${JSON.stringify(built, null, 1)}\n`);
