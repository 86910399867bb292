/** Queries to two servers or more, of which none learns what they ask for together (docs/theory/pir.md, Eq. 1-2). */

import { randomBytes } from "./uniform.js";

/** One query for each server: uniformly random subsets of the records, of which the sum modulo 2 is the wanted one alone. */
export function queriesFor(index: number, records: number, servers: number): Uint8Array[] {
  const size = Math.ceil(records / 8), last = new Uint8Array(size);
  const queries = Array.from({ length: servers - 1 }, () => {
    const subset = randomBytes(size);
    if (records % 8) subset[size - 1]! &= (1 << (records % 8)) - 1;
    xorInto(last, subset);
    return subset;
  });
  last[index >> 3]! ^= 1 << (index & 7);
  return [...queries, last];
}

/** Add bytes to `out`, modulo 2. */
export function xorInto(out: Uint8Array, other: Uint8Array): void {
  for (let at = 0; at < out.length; at++) out[at]! ^= other[at]!;
}
