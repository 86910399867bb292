/** Digests against Node's own (OpenSSL): another implementation of the same standards. */

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { hex } from "../dist/bytes.js";
import { begunBlake2b, blake2b, sha256, shake256 } from "../dist/digests.js";

const LENGTHS = [...Array(300).keys(), 511, 512, 513, 4096, 100_003];

test("digests of every length equal those of OpenSSL", () => {
  for (const length of LENGTHS) {
    const bytes = new Uint8Array(randomBytes(length));
    assert.equal(hex(sha256(bytes)), createHash("sha256").update(bytes).digest("hex"), `sha256 of ${length}`);
    assert.equal(hex(blake2b(bytes)), createHash("blake2b512").update(bytes).digest("hex"), `blake2b of ${length}`);
    for (const size of [8, 136, 137, 500]) {
      const expected = createHash("shake256", { outputLength: size }).update(bytes).digest("hex");
      assert.equal(hex(shake256(bytes, size)), expected, `shake256 of ${length}`);
    }
  }
});

test("a digest of parts is that of the whole", () => {
  const bytes = new Uint8Array(randomBytes(1000));
  for (const step of [1, 7, 127, 128, 129, 500]) {
    const parts = begunBlake2b({ size: 32, key: bytes.subarray(0, 32) });
    for (let at = 0; at < bytes.length; at += step) parts.update(bytes.subarray(at, at + step));
    assert.equal(hex(parts.digest()), hex(blake2b(bytes, { size: 32, key: bytes.subarray(0, 32) })));
  }
});
