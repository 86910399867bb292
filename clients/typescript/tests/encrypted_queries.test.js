/** The exits by one server, with a hint and without: known answers, the ring, the law of noise, and what a query tells. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { concatenated, fromHex, hex } from "../dist/bytes.js";
import { sha256 } from "../dist/digests.js";
import { Hintless, hintlessLayout, mostColumns } from "../dist/tiles/hintless.js";
import { noise } from "../dist/tiles/noise.js";
import { OneServer, mostColumns as mostWithHint, oneServerLayout } from "../dist/tiles/one_server.js";
import { Queries, piece } from "../dist/tiles/queries.js";
import { DEGREE, MODULUS, automorphism, multiplied, residue, ternary, transformed } from "../dist/tiles/ring.js";

const known = (name) => JSON.parse(readFileSync(new URL(`retrieval/${name}.json`, import.meta.url), "utf8"));
const KEY_WORDS = 10 * DEGREE, N = 1408, SEED = new Uint8Array(32).fill(7);
const hintless = (records, size, parts = 1) => new Hintless(hintlessLayout(records, size, parts), SEED);
const words = (bytes) => Array.from(new Uint32Array(bytes.slice().buffer));
const bytesOf = (values) => new Uint8Array(Uint32Array.from(values).buffer);

/** The distribution function of the noise, in doubles: the probability of less than x, for x = -60, ..., 60. */
const weight = (x) => Math.exp((-25 * x * x) / 2048);
const TOTAL = Array.from({ length: 201 }, (_, at) => weight(at - 100)).reduce((sum, value) => sum + value, 0);
const below = (x) => Array.from({ length: x + 100 }, (_, at) => weight(at - 100)).reduce((sum, value) => sum + value, 0) / TOTAL;

/** Random bytes from which these values of noise are drawn: for each a word in the middle of its cells. */
const MIDDLES = new Map(Array.from({ length: 81 }, (_, at) => [at - 40, 2 ** 32 * (below(at - 40) + weight(at - 40) / TOTAL / 2)]));
const drawnFor = (values) => bytesOf(Array.from(values, (value) => MIDDLES.get(value)));

/** Put bytes in the place of the system's generator, and have all of them drawn. */
function drawing(context, bytes, run) {
  let at = 0;
  const planted = context.mock.method(globalThis.crypto, "getRandomValues", (out) => {
    assert.ok(at + out.length <= bytes.length, "more is drawn than is planted");
    out.set(bytes.subarray(at, (at += out.length)));
    return out;
  });
  try {
    const found = run();
    assert.equal(at, bytes.length, "less is drawn than is planted");
    return found;
  } finally {
    planted.mock.restore();
  }
}

/** Queries of a known answer, with its secrets and its noise drawn, and its answers. */
function ofHintless(context, vector) {
  const { records, size, parts, secrets } = vector, layout = hintlessLayout(records, size, parts);
  const [own, ofKeys] = [vector.noise, vector.key_noise].map((text) => new Int8Array(fromHex(text)));
  const random = secrets.flatMap((secret, part) => [
    fromHex(secret),
    drawnFor(own.subarray(part * layout.columns, (part + 1) * layout.columns)),
    drawnFor(ofKeys.subarray(part * KEY_WORDS, (part + 1) * KEY_WORDS)),
  ]);
  const scheme = new Hintless(layout, fromHex(vector.seed)), answers = concatenated(...vector.answers.map(fromHex));
  return { layout, answers, queries: drawing(context, concatenated(...random), () => new Queries([vector.index], scheme)) };
}

test("hintless: with known randomness the queries are those of the known answers, and decode to the record", (context) => {
  const vectors = known("hintless");
  assert.ok(vectors.length >= 2);
  for (const vector of vectors) {
    const { layout, queries, answers } = ofHintless(context, vector);
    const digests = vector.query_sha256.map((_, at) => hex(sha256(piece(queries.bytes, at, layout.queryBytes))));
    assert.deepEqual(digests, vector.query_sha256);
    assert.deepEqual(queries.decode(answers).map(hex), [vector.record]);
  }
});

/** The public matrix of a few columns, a row for each, by Node's own digests. */
function publicMatrix(seed, columns) {
  const input = Buffer.concat([Buffer.from("veil pir public matrix 2"), fromHex(seed), Buffer.alloc(8)]);
  const stream = createHash("shake256", { outputLength: 4 * N * columns }).update(input).digest();
  return Array.from({ length: columns }, (_, at) => words(new Uint8Array(stream)).slice(at * N, (at + 1) * N));
}

/** Queries of a known answer. Its noise follows from queries and secrets. */
function ofOneServer(context, { records, parts, seed, index, secrets, queries, hint }) {
  const layout = oneServerLayout(records.length, records[0].length / 2, parts), matrix = publicMatrix(seed, layout.columns);
  const drawn = queries.map((query, part) => {
    const s = words(fromHex(secrets[part])), sent = words(fromHex(query));
    return matrix.map((row, at) => {
      const mask = row.reduce((sum, value, k) => (sum + Math.imul(value, s[k])) | 0, 0);
      return (sent[at] - mask - (at === index * parts + part ? 1 << 24 : 0)) | 0;
    });
  });
  const random = concatenated(...secrets.map(fromHex), ...drawn.map(drawnFor));
  const scheme = new OneServer(layout, fromHex(seed), fromHex(hint));
  return drawing(context, random, () => new Queries([index], scheme));
}

test("one server: with known randomness the queries are those of the known answers, and decode to the record", (context) => {
  const vectors = known("one_server");
  assert.ok(vectors.length >= 2);
  for (const vector of vectors) {
    const queries = ofOneServer(context, vector);
    assert.equal(hex(queries.bytes), vector.queries.join(""));
    assert.deepEqual(queries.decode(concatenated(...vector.answers.map(fromHex))).map(hex), [vector.records[vector.index]]);
  }
});

test("another key, another answer or another hint give other bytes", (context) => {
  const [vector] = known("hintless"), { queries: others, answers } = ofHintless(context, vector);
  const scheme = new Hintless(hintlessLayout(vector.records, vector.size, 1), fromHex(vector.seed));
  assert.notDeepEqual(new Queries([vector.index], scheme).decode(answers).map(hex), [vector.record]);
  answers[3] ^= 0x80;
  const [record] = others.decode(answers);
  assert.deepEqual([...record].map((byte, at) => byte ^ fromHex(vector.record)[at]), [128, 0, 0, 0, 0, 0, 0]);
  const [hinted] = known("one_server"), answered = concatenated(...hinted.answers.map(fromHex));
  const changed = { ...hinted, hint: hinted.hint.replace(/^..../, "ffff") };
  for (const [twin, isRight] of [[hinted, true], [changed, false]]) {
    assert.equal(hex(ofOneServer(context, twin).decode(answered)[0]) === hinted.records[hinted.index], isRight);
  }
});

test("answers decode once, and of the right length only", () => {
  const queries = new Queries([1, 0], hintless(3, 5)), { answerBytes } = hintlessLayout(3, 5, 1);
  assert.throws(() => queries.decode(new Uint8Array(answerBytes)), { name: "WireError", message: /2 answers of 8192 bytes/ });
  assert.equal(queries.decode(new Uint8Array(2 * answerBytes)).length, 2);
  assert.throws(() => queries.decode(new Uint8Array(2 * answerBytes)), { name: "InputError", message: /decoded already/ });
  assert.equal(JSON.stringify(Object.keys(queries)), '["bytes"]');
  for (const indices of [[], [3], [-1], [0.5]]) assert.throws(() => new Queries(indices, hintless(3, 5)), { name: "InputError" });
});

/** The product of two polynomials in BigInt, by its definition. */
function bigProduct(left, right) {
  const out = new Array(DEGREE).fill(0n);
  left.forEach((a, i) => {
    if (a) right.forEach((b, j) => (out[(i + j) % DEGREE] += (i + j < DEGREE ? 1n : -1n) * BigInt(a) * BigInt(b)));
  });
  return out.map((value) => Number(((value % BigInt(MODULUS)) + BigInt(MODULUS)) % BigInt(MODULUS)));
}

test("products in the ring are those of whole numbers; the largest numbers overflow nothing", () => {
  const random = (name) => {
    const stream = createHash("shake256", { outputLength: 4 * DEGREE }).update(name).digest();
    return Int32Array.from(words(new Uint8Array(stream)), (word) => word % MODULUS);
  };
  const sparse = new Int32Array(DEGREE), most = new Int32Array(DEGREE).fill(MODULUS - 1);
  [[0, 1], [1, MODULUS - 1], [1000, 12345], [2047, MODULUS - 2]].forEach(([at, value]) => (sparse[at] = value));
  for (const left of [random("one"), random("other"), most]) {
    assert.deepEqual([...multiplied(transformed(left), transformed(sparse))], bigProduct(sparse, left));
  }
  // (1 + X + ...)^2 has k + 1 - (d - 1 - k) at X^k.
  const square = Array.from({ length: DEGREE }, (_, k) => residue(2 * k + 2 - DEGREE));
  assert.deepEqual([...multiplied(transformed(most), transformed(most))], square);
  assert.deepEqual([-1, MODULUS, -MODULUS - 5].map(residue), [MODULUS - 1, 0, MODULUS - 5]);
  const s = Int32Array.from({ length: DEGREE }, (_, at) => (at % 3) - 1);
  assert.deepEqual(automorphism(automorphism(s, 5), 3277), s, "5 * 3277 is 1 modulo 4096");
});

/** Chi-square of counts against probabilities, and its number of degrees of freedom. */
function unlikely(counts, probabilities, total) {
  return counts.reduce((sum, count, at) => sum + (count - total * probabilities[at]) ** 2 / (total * probabilities[at]), 0);
}

test("noise has its law; half the noise and a rounded one are caught", () => {
  const total = 200_000, places = Array.from({ length: 41 }, (_, at) => at - 20), shares = places.map((x) => weight(x) / TOTAL);
  shares.push(1 - shares.reduce((sum, share) => sum + share, 0));
  const found = (draw) => {
    const counts = new Array(42).fill(0);
    for (const x of draw(total)) counts[Math.abs(x) <= 20 ? x + 20 : 41]++;
    return unlikely(counts, shares, total);
  };
  // 41 degrees of freedom: below 12 and above 95 have probabilities of some 1e-6 each.
  const real = found(noise);
  assert.ok(real > 12 && real < 95, `${real}`);
  assert.ok(found((count) => noise(count).map((x) => x / 2)) > 1000);
  assert.ok(found((count) => noise(count).map((x) => Math.round(1.03 * x))) > 1000);
});

test("where a value ends within the first digits, further ones decide", (context) => {
  for (const x of [-20, -3, 0, 1, 15]) {
    const cell = bytesOf([2 ** 32 * below(x + 1)]);
    for (const [more, value] of [[0, x], [255, x + 1]]) {
      const planted = concatenated(cell, new Uint8Array(8).fill(more));
      assert.deepEqual([...drawing(context, planted, () => noise(1))], [value]);
    }
  }
  // The first and the last cell hold all values beyond some 40; twice the digits say which.
  const far = drawing(context, concatenated(new Uint8Array(4), bytesOf([0, 2 ** 31])), () => noise(1))[0];
  const near = drawing(context, concatenated(new Uint8Array(4).fill(255), bytesOf([0, 2 ** 31])), () => noise(1))[0];
  assert.ok(below(far) <= 2 ** -33 && 2 ** -33 < below(far + 1) && near === -far, `${far} ${near}`);
});

test("secrets are even on -1, 0 and 1, and a byte that would bias them is drawn again", (context) => {
  const counts = [0, 0, 0];
  for (let n = 0; n < 100; n++) for (const value of ternary()) counts[value + 1]++;
  // 2 degrees of freedom: above 30 has a probability of some 3e-7.
  assert.ok(unlikely(counts, [1 / 3, 1 / 3, 1 / 3], 100 * DEGREE) < 30);
  const planted = concatenated(new Uint8Array(DEGREE).fill(255), new Uint8Array(DEGREE).fill(2));
  assert.ok(drawing(context, planted, ternary).every((value) => value === 1));
});

test("two queries under one secret tell what they ask for; two that are made do not", (context) => {
  const scheme = hintless(100, 1), secret = new Uint8Array(DEGREE).map((_, at) => at % 3);
  const asked = (index) => words(new Queries([index], scheme).bytes).slice(0, 100);
  const repeating = (index) => {
    const generator = globalThis.crypto.getRandomValues.bind(globalThis.crypto);
    const planted = context.mock.method(globalThis.crypto, "getRandomValues", (out) => {
      return out.length === DEGREE ? (out.set(secret), out) : generator(out);
    });
    const found = asked(index);
    planted.mock.restore();
    return found;
  };
  const step = (MODULUS - 1) / 256;
  const differing = (ask) => {
    const [first, second] = [ask(5), ask(90)];
    const gaps = first.map((value, at) => Math.abs(residue(value - second[at] + MODULUS / 2 - 0.5) - MODULUS / 2 + 0.5));
    const isExplained = gaps.every((gap) => Math.min(gap, Math.abs(gap - step)) < 200);
    return isExplained ? gaps.flatMap((gap, at) => (gap > step / 2 ? [at] : [])) : [];
  };
  assert.deepEqual(differing(repeating), [5, 90]);
  for (let n = 0; n < 5; n++) assert.deepEqual(differing(asked), []);
});

test("queries have one length, and each word of theirs is even", () => {
  const scheme = hintless(2500, 40, 2), { queryBytes } = scheme.layout;
  for (const index of [0, 2499]) {
    const { bytes } = new Queries([index, 3], scheme);
    assert.equal(bytes.length, 4 * queryBytes);
    const values = words(bytes), counts = new Array(64).fill(0);
    assert.ok(values.every((value) => value < MODULUS));
    for (const value of values) counts[Math.floor((64 * value) / MODULUS)]++;
    const found = unlikely(counts, new Array(64).fill(1 / 64), values.length);
    assert.ok(found > 20 && found < 140, `${found}`); // 63 degrees of freedom: some 1e-7 on either side
  }
});

test("limits of columns are those of the theory, and what is said of an exit is checked", () => {
  assert.equal(mostColumns(32 << 10), 134_879);
  assert.equal(mostWithHint(32 << 10), 1_350_692);
  const { queryBytes: query_bytes, answerBytes: answer_bytes } = hintlessLayout(9, 5000, 2);
  const facts = { degree: 2048, parts: 2, seed: hex(SEED), query_bytes, answer_bytes };
  assert.deepEqual(Hintless.of(facts, 9, 5000).layout, hintlessLayout(9, 5000, 2));
  const hinted = oneServerLayout(9, 5000, 2), sizes = { query_bytes: hinted.queryBytes, answer_bytes: hinted.answerBytes };
  const said = { dimension: N, parts: 2, seed: hex(SEED), ...sizes, hint_bytes: 4 * N * 2500, hint_sha256: "" };
  assert.deepEqual(OneServer.facts(said, 9, 5000).layout, hinted);
  const wrong = [
    { degree: 16, dimension: 1024 },
    ...[0, true, 3, 5001, 1e9, "2", 1.5].map((parts) => ({ parts })),
    ...["ab", null, "G".repeat(64)].map((seed) => ({ seed })),
    ...[{ query_bytes: 1 }, { answer_bytes: 2 ** 50 }],
  ];
  for (const [read, right] of [[Hintless.of, facts], [OneServer.facts, said]]) {
    for (const change of wrong) {
      assert.throws(() => read({ ...right, ...change }, 9, 5000), { name: "WireError", message: /damaged .*; ask whoever serves it/ });
    }
    for (const none of [null, undefined, [], "x", 3]) assert.throws(() => read(none, 9, 5000), { name: "WireError" });
  }
  assert.throws(() => Hintless.of({ ...facts, parts: 1 }, 134_880, 32 << 10), /134880 columns, of which 134879/);
  assert.throws(() => OneServer.facts({ ...said, hint_bytes: 1 }, 9, 5000), { name: "WireError" });
});
