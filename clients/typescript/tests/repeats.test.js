/** Near repeats. Oracles: Python's device under the same secret, bits that were planted by hand, and the words of one release. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { hex, utf8 } from "../dist/bytes.js";
import { decode } from "../dist/codec.js";
import { composedEpsilon } from "../dist/composition.js";
import { Device } from "../dist/device.js";
import { compiledBits, plainBits } from "../dist/differing_bits.js";
import { shake256 } from "../dist/digests.js";
import { MOST_REMEMBERED, opened, remembered, sealed } from "../dist/drawn.js";
import { ReleaseRefused, VeilError } from "../dist/errors.js";
import { SubsetMechanism } from "../dist/mechanism.js";
import { Secret, normalQuantile } from "../dist/randomness.js";
import { SAME, mostBits, sketchDirections, sketched, withEarlierWords } from "../dist/repeats.js";
import { MemoryStore } from "../dist/store.js";
import { dictionary, image, secret } from "./planted.js";
import { bytes, double, fromBase64, thrown, vectors } from "./vectors.js";

const { frames, quantiles, seal, sketches } = vectors.repeats;
const LAW = { dictionarySize: 90, epsilon: 6, m: 2 };
const protection = () => ({ epsilon: 6, dictionary: dictionary() });
const anew = { purpose: "map" };

/** A device under the vectors' secret, or under one of its own. */
async function opening({ store = new MemoryStore(), key = bytes(vectors.draws.secret) } = {}) {
  await store.transact(() => ({ result: null, secret: key }));
  return Device.open(store);
}

/** A frame of the vectors' video. */
function frame(number) {
  const { keypoints, descriptors, digest } = frames[number], { features, camera } = image();
  const seen = { keypoints: new Float32Array(fromBase64(keypoints).buffer), descriptors: fromBase64(descriptors) };
  return { features: { ...features, ...seen }, camera, digest: bytes(digest) };
}

/** Another frame of the first one's features in their order: each descriptor has a little noise. */
function noisy(number) {
  const { features, ...rest } = frame(0);
  const descriptors = features.descriptors.map((value, i) => value + (value > 0 ? (i * (number + 3)) % 4 : 0));
  return { ...rest, features: { ...features, descriptors }, digest: new Uint8Array(32).fill(number) };
}

/** The words of each feature of the first frame, by its row. */
const wordsOf = ({ order, upload }) => new Map([...order].map((row, i) => [row, [...upload.form.ids.subarray(2 * i, 2 * i + 2)]]));

test("one secret makes the sketches that it makes in Python", () => {
  const { descriptors } = image().features, expected = hex(fromBase64(sketches));
  assert.equal(hex(sketched(descriptors, sketchDirections(secret))), expected);
  // Broken twin: another secret has other directions, and half of the bits are others.
  const other = sketched(descriptors, sketchDirections(new Secret(new Uint8Array(32))));
  const differing = fromBase64(sketches).reduce((sum, byte, i) => sum + ((byte ^ other[i]).toString(2).match(/1/g) ?? []).length, 0);
  assert.ok(Math.abs(differing / (8 * other.length) - 0.5) < 0.1, String(differing));
});

test("normal numbers are SciPy's to 12 digits", () => {
  for (const [p, expected] of quantiles.map((row) => row.map(double))) {
    assert.ok(Math.abs(normalQuantile(p) - expected) <= 1e-12 * Math.abs(expected), `${p}: ${normalQuantile(p)}`);
  }
});

test("the frames of a video leave as the bytes that Python's device releases", async () => {
  const device = await opening();
  for (const [number, { bytes: expected, shownBefore }] of frames.entries()) {
    const made = await device.release(frame(number), protection());
    assert.equal(made.shownBefore, shownBefore);
    assert.equal(hex(made.message), hex(fromBase64(expected)), `frame ${number}`);
    assert.deepEqual([made.order.length, decode(made.message).form.ids.length], [number ? 39 : 40, number ? 78 : 80]);
    for (const [i, row] of made.order.entries()) {
      assert.equal(made.upload.keypoints[2 * i], frame(number).features.keypoints[2 * row]);
    }
  }
  assert.deepEqual((await device.ledger.entries()).map(({ charged }) => charged), [40, 5, 5, 5]);
  for (const [number, purpose] of [[2, "map"], [0, "localize"], [3, "localize"], [1, "map"], [0, "map"]]) {
    const again = await device.release(frame(number), protection(), { purpose });
    assert.equal(hex(again.message), hex(fromBase64(frames[number].bytes)), "it leaves as it did, whatever is asked");
  }
  assert.equal((await device.ledger.entries()).length, 4);
  // Broken twins: a device that draws anew, and one that knows nothing of the first frame.
  for (const options of [anew, {}]) {
    const made = await (await opening()).release(frame(1), protection(), options);
    assert.equal(made.shownBefore, 0);
    assert.notEqual(hex(made.message), hex(fromBase64(frames[1].bytes)));
  }
});

test("differing bits are counted alike by compiled code, by plain loops and one by one", () => {
  const mine = shake256(utf8("mine"), 64 * 7), theirs = shake256(utf8("theirs"), 64 * 300);
  theirs.set(mine.subarray(64, 128), 64 * 299);
  theirs.set(mine.subarray(128, 192).map((byte) => ~byte), 64 * 298);
  const ways = [compiledBits, plainBits].map((made) => made(mine, theirs, 256));
  for (const [first, count] of [[0, 256], [256, 44]]) {
    for (let row = 0; row < 7; row++) {
      const expected = Array.from({ length: count }, (_, i) => {
        let sum = 0;
        for (let bit = 0; bit < 512; bit++) {
          sum += ((mine[64 * row + (bit >> 3)] ^ theirs[64 * (first + i) + (bit >> 3)]) >> (bit & 7)) & 1;
        }
        return sum;
      });
      for (const differing of ways) assert.deepEqual([...differing(row, first, count).subarray(0, count)], expected);
    }
  }
  assert.deepEqual([ways[0](1, 299, 1)[0], ways[1](2, 298, 1)[0]], [0, 512]);
});

test("pairs are those of bits that were planted by hand", () => {
  const earlier = { sketches: new Uint8Array(3 * 64), ids: Uint32Array.of(1, 2, 3, 4, 5, 6) };
  earlier.sketches.fill(0xff, 64, 128);
  earlier.sketches.fill(0x0f, 128);
  const limit = mostBits(SAME), flipped = (from, count) => {
    const sketch = earlier.sketches.slice(64 * from, 64 * from + 64);
    for (let bit = 0; bit < count; bit++) sketch[bit >> 3] ^= 0x80 >> (bit & 7);
    return sketch;
  };
  assert.equal(limit, 99); // 512 times 2 asin(0.3) / pi
  const planted = [[0, 3], [0, 2], [1, limit], [2, limit + 1], [2, limit], [2, limit]];
  const given = new Uint8Array(planted.length * 64);
  planted.forEach(([from, count], i) => given.set(flipped(from, count), 64 * i));
  const form = (epsilon) => ({ ids: Uint32Array.from({ length: 12 }, (_, i) => 70 + i), mechanism: new SubsetMechanism({ ...LAW, epsilon }) });
  const answered = withEarlierWords(form(6), given, earlier);
  // The second is nearer to 0 than the first; the fourth is too far from 2, and of two equally near ones the first takes it.
  assert.deepEqual([...answered.rows], [1, 2, 3, 4]);
  assert.deepEqual(answered.isNew, [false, false, true, false]);
  assert.deepEqual([...answered.ids], [1, 2, 3, 4, 76, 77, 5, 6]);
  const nothing = withEarlierWords(form(0), given, earlier);
  assert.deepEqual([...nothing.rows, ...nothing.ids], [0, 1, 2, 3, 4, 5, ...form(0).ids], "equal words of epsilon 0 would tell");
  const none = withEarlierWords(form(6), given, { sketches: new Uint8Array(0), ids: new Uint32Array(0) });
  assert.deepEqual([none.rows.length, none.isNew.every(Boolean)], [6, true]);
});

for (const count of [2, 5, 12]) {
  test(`a burst of ${count} shows no words but those of one release, and is charged once`, async () => {
    const device = await opening(), twin = await opening();
    const one = composedEpsilon([{ mechanism: new SubsetMechanism(LAW), features: 40 }], 1e-6);
    await device.ledger.setBudget({ unit: "session", epsilon: one, delta: 1e-6 });
    await device.ledger.setBudget({ unit: "point", epsilon: 6, delta: 1e-6 });
    const shown = new Map(), shownAnew = new Map();
    const add = (to, words) => words.forEach((ids, row) => to.set(row, new Set([...(to.get(row) ?? []), ...ids])));
    let left = 0;
    for (let number = 0; number < count; number++) {
      const made = await device.release(number ? noisy(number) : frame(0), protection());
      assert.equal(made.shownBefore, number ? made.order.length : 0);
      left += made.order.length;
      add(shown, wordsOf(made));
      add(shownAnew, wordsOf(await twin.release(number ? noisy(number) : frame(0), protection(), anew)));
    }
    assert.ok(left > 38 * count, "nearly all features leave in each frame");
    // Rows 3 and 30 to 32 are one descriptor, of which each frame may show the words in another order.
    const alike = [3, 30, 31, 32];
    assert.ok([...shown].every(([row, ids]) => alike.includes(row) || ids.size === 2));
    assert.ok(new Set(alike.flatMap((row) => [...shown.get(row)])).size <= 8);
    // Broken twin: drawn anew, every frame shows other words of a feature, and the budget that held all frames holds one.
    assert.ok([...shownAnew.values()].filter(({ size }) => size > 2).length > 20);
    await assert.rejects(device.release({ ...noisy(77) }, protection(), anew), /budget of/);
  });
}

test("a feature that may be an earlier one, but got no words, does not leave", async () => {
  const device = await opening(), made = [];
  for (const number of [0, 1]) made.push(await device.release(frame(number), protection()));
  const rows = new Set(made[1].order);
  assert.ok(made[0].order.includes(34) && rows.has(10) !== rows.has(34) && rows.size === 39, "frame 1 has feature 10 twice");
});

test("two frames that are released at once know each other", async () => {
  const store = new MemoryStore(), [left, right] = [await opening({ store }), await opening({ store })];
  const made = await Promise.all([left.release(frame(0), protection()), right.release(noisy(1), protection())]);
  assert.deepEqual(made.map(({ shownBefore, order }) => shownBefore === order.length).sort(), [false, true]);
});

test("another secret draws other words, and knows nothing of what left", async () => {
  const device = await opening(), other = await opening({ key: new Uint8Array(32).fill(1) });
  const first = wordsOf(await device.release(frame(0), protection())), made = await other.release(noisy(1), protection());
  assert.equal(made.shownBefore, 0);
  const equal = [...wordsOf(made)].filter(([row, ids]) => String(ids) === String(first.get(row)));
  assert.ok(equal.length < 20, String(equal.length));
});

test("the oldest are forgotten, and what they gave is not drawn anew", async () => {
  const of = (imageDigest, features) => ({ imageDigest, kind: "k", features, sealed: new Uint8Array(0) });
  const half = MOST_REMEMBERED / 2, digests = (items) => items.map(({ imageDigest }) => imageDigest).join("");
  assert.equal(digests(remembered([of("a", half), of("b", half - 1)], of("c", 1))), "abc");
  assert.equal(digests(remembered([of("a", half), of("b", half)], of("c", 1))), "bc");
  assert.equal(digests(remembered([of("a", 1), of("b", half)], of("c", half + 1))), "c");
  assert.equal(digests(remembered([of("a", 1)], of("c", MOST_REMEMBERED + 1))), "c", "the newest is kept");
  const store = new MemoryStore(), device = await opening({ store });
  const [, second] = [await device.release(frame(0), protection()), await device.release(frame(1), protection())];
  assert.equal(second.shownBefore, 34);
  await store.transact(({ drawn }) => ({ result: null, drawn: remembered(drawn, of("ff", MOST_REMEMBERED - 39)) }));
  assert.equal(await store.transact(({ drawn }) => ({ result: drawn.length })), 2, "the first frame is forgotten");
  await assert.rejects(device.release(frame(1), protection()), (error) => {
    return error instanceof ReleaseRefused && error.message.includes("other words of earlier releases");
  });
  assert.equal((await device.ledger.entries()).length, 2);
});

test("what is kept is sealed: no sketch and no word can be read, and nothing of it opens under another secret", async () => {
  const [content, expected] = seal.map(fromBase64), nonce = Uint8Array.from({ length: 16 }, (_, i) => i);
  assert.equal(hex(sealed(content, secret, nonce)), hex(expected), "the seal is Python's");
  assert.equal(hex(opened(expected, secret)), hex(content));
  for (const wrong of [expected.slice(1), expected.slice(0, 20), new Uint8Array(0), Uint8Array.from(expected, (byte, i) => byte ^ Number(i === 30))]) {
    assert.ok(thrown(() => opened(wrong, secret)) instanceof VeilError);
  }
  assert.ok(thrown(() => opened(expected, new Secret(new Uint8Array(32)))) instanceof VeilError);
  const store = new MemoryStore(), device = await opening({ store });
  const made = await device.release(frame(0), protection());
  const [kept] = await store.transact(({ drawn }) => ({ result: drawn }));
  const blob = Buffer.from(kept.sealed), plain = sketched(frame(0).features.descriptors, sketchDirections(secret));
  for (let row = 0; row < 40; row++) assert.ok(!blob.includes(plain.subarray(64 * row, 64 * row + 8)));
  assert.ok(!blob.includes(Buffer.from(made.upload.form.ids.slice(0, 4).buffer)));
  assert.ok(Buffer.from(opened(kept.sealed, secret)).includes(Buffer.from(made.upload.form.ids.slice(0, 4).buffer)));
  const damaged = { ...kept, sealed: kept.sealed.map((byte, i) => byte ^ Number(i === 100)) };
  await store.transact(() => ({ result: null, drawn: [damaged] }));
  await assert.rejects(device.release(frame(1), protection()), /not sealed by this secret/);
  assert.equal((await device.ledger.entries()).length, 1);
  assert.equal((await device.release(frame(1), protection(), anew)).shownBefore, 0);
});
