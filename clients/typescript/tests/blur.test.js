/** Blur of the scale space. Oracles: plain loops in double precision, and the definition at single pixels. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { utf8 } from "../dist/bytes.js";
import { shake256 } from "../dist/digests.js";
import { convolvedBySimd, convolvedPlainly } from "../dist/sift/blur.js";
import { expOfMinus } from "../dist/sift/exponential_table.js";

test("blur by SIMD is that by plain loops, for images of every width, one after the other", () => {
  for (const [width, height, radius] of [[40, 30, 5], [17, 3, 1], [1, 9, 4], [64, 64, 12], [33, 20, 7], [40, 30, 5]]) {
    const image = Float32Array.from(shake256(utf8(`${width}`), width * height), (value) => value / 255);
    const half = Float64Array.from({ length: radius + 1 }, (_, at) => 1 / (1 + at)), sum = 2 * half.reduce((a, b) => a + b) - half[0];
    const kernel = half.map((value) => value / sum);
    const fast = convolvedBySimd(image, width, height, kernel), plain = convolvedPlainly(image, width, height, kernel);
    assert.ok(fast !== null, "this engine has SIMD");
    plain.forEach((value, at) => assert.ok(Math.abs(value - fast[at]) < 1e-6, `pixel ${at} of ${width} x ${height}`));
    const clamped = (value, most) => Math.min(Math.max(value, 0), most - 1);
    for (const [x, y] of [[0, 0], [width - 1, height - 1], [width >> 1, height >> 1]]) {
      let expected = 0;
      for (let dy = -radius; dy <= radius; dy++) {
        for (let dx = -radius; dx <= radius; dx++) {
          const weight = kernel[Math.abs(dx)] * kernel[Math.abs(dy)];
          expected += weight * image[clamped(y + dy, height) * width + clamped(x + dx, width)];
        }
      }
      assert.ok(Math.abs(expected - fast[y * width + x]) < 1e-6);
    }
  }
});

test("the table of exponentials is near the exponential", () => {
  for (let x = 0; x < 30; x += 0.013) assert.ok(Math.abs(expOfMinus(x) - Math.exp(-x)) < 1.3e-3);
  assert.equal(expOfMinus(0), 1);
  assert.equal(expOfMinus(25), 0);
});
