/** Vectors that Python's veil wrote (`python -m worlds.typescript`, run in `tests/`), and readers of what they hold. */

import { readFileSync } from "node:fs";
import { fromHex } from "../dist/bytes.js";

export const vectors = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8").replace(/\bNaN\b/g, "null"));

/** Bytes from base64. */
export const fromBase64 = (text) => new Uint8Array(Buffer.from(text, "base64"));

/** A double as Python's `repr` wrote it. */
export const double = (text) => Number({ inf: "Infinity", "-inf": "-Infinity", nan: "NaN" }[text] ?? text);

/** Parameters of a mechanism: K, epsilon, m. */
export const law = ([dictionarySize, epsilon, m]) => ({ dictionarySize, epsilon: double(epsilon), m });

/** Bytes of hex digits. */
export const bytes = fromHex;

/** The error that a function throws; null if it throws none. */
export function thrown(run) {
  try {
    run();
    return null;
  } catch (error) {
    return error;
  }
}
