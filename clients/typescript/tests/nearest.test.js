/** The search for nearest words. Oracle: the definition, in plain loops over all words. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Dictionary } from "../dist/dictionary.js";
import { plainProducts, simdProducts } from "../dist/dot_products.js";
import { InputError } from "../dist/errors.js";
import { shake256 } from "../dist/digests.js";
import { utf8 } from "../dist/bytes.js";

const stream = (name, length) => shake256(utf8(name), length);
const DIGEST = "0f".repeat(32);

test("products by SIMD are those by plain loops, for rows of every length", () => {
  for (const dim of [2, 15, 16, 17, 32, 100, 128, 130]) {
    const [descriptors, words] = [stream(`d${dim}`, 5 * dim), stream(`w${dim}`, 300 * dim)];
    descriptors.fill(255, 0, dim);
    words.fill(255, 0, dim);
    const plain = plainProducts(descriptors, words, dim, 64), fast = simdProducts(descriptors, words, dim, 64);
    assert.ok(fast !== null, "this engine has SIMD");
    for (let row = 0; row < 5; row++) {
      for (const [first, count] of [[0, 64], [64, 1], [236, 64], [299, 1]]) {
        const expected = [...plain(row, first, count).subarray(0, count)];
        assert.deepEqual([...fast(row, first, count).subarray(0, count)], expected);
        let product = 0;
        for (let i = 0; i < dim; i++) product += descriptors[row * dim + i] * words[first * dim + i];
        assert.equal(expected[0], product);
      }
    }
  }
});

for (const kind of ["8-bit", "float"]) {
  test(`the nearest of ${kind} words is the one at the least angle, the first of equals`, () => {
    const bytes = stream("words", 700 * 128).map((value) => value % 120), descriptors = stream("descriptors", 40 * 128);
    bytes.copyWithin(500 * 128, 0, 128);
    descriptors.set(bytes.subarray(0, 128));
    const stored = kind === "8-bit" ? bytes : Float32Array.from(bytes, (value) => value / 7);
    const book = new Dictionary({ descriptor: "sift", normalization: "L2", dim: 128, stored, digest: DIGEST });
    const { words, distances } = book.nearest(descriptors);
    const unit = (rows, row) => {
      const values = Array.from(rows.subarray(128 * row, 128 * row + 128)), length = Math.hypot(...values);
      return values.map((value) => value / length);
    };
    for (let row = 0; row < 40; row++) {
      const descriptor = unit(descriptors, row);
      const all = Array.from({ length: 700 }, (_, word) => {
        const near = unit(stored, word);
        return Math.hypot(...descriptor.map((value, i) => value - near[i]));
      });
      const least = Math.min(...all);
      assert.ok(Math.abs(all[words[row]] - least) < 1e-6);
      assert.ok(Math.abs(distances[row] - least) < 1e-6);
    }
    assert.equal(words[0], 0);
    assert.throws(() => book.nearest(descriptors.subarray(1)), InputError);
  });
}

test("what is no dictionary is refused", () => {
  const stored = Uint8Array.of(1, 0, 0, 0, 0, 2, 0, 0);
  const good = { descriptor: "sift", normalization: "L2", dim: 4, stored, digest: DIGEST };
  assert.equal(new Dictionary(good).size, 2);
  for (const change of [
    { stored: good.stored.subarray(4) },
    { stored: good.stored.subarray(1) },
    { stored: Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0) },
    { stored: Float32Array.of(1, 0, 0, 0, NaN, 0, 0, 0) },
    { digest: "0f" },
  ]) {
    assert.throws(() => new Dictionary({ ...good, ...change }), InputError);
  }
});
