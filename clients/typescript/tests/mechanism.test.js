/** The law, the draws and their composition. Oracle: what Python computes for the same numbers and the same secret. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { hex } from "../dist/bytes.js";
import { basicEpsilon, composedEpsilon } from "../dist/composition.js";
import { InputError } from "../dist/errors.js";
import { scaledExponential } from "../dist/exponential.js";
import { SubsetMechanism } from "../dist/mechanism.js";
import { general, outward, outwardPercent, shortest } from "../dist/numbers.js";
import { Secret, bernoulli, integersBelow, subsetBelow } from "../dist/randomness.js";
import { randomized } from "../dist/words.js";
import { bytes, double, law, thrown, vectors } from "./vectors.js";

test("numbers are spelled as Python spells them", () => {
  for (const [repr, short, shorter] of vectors.numbers) {
    const value = double(repr);
    assert.equal(shortest(value), repr);
    assert.equal(general(value), short);
    assert.equal(general(value, 3), shorter);
  }
});

test("losses are rounded up, as in Python", () => {
  for (const [repr, four, six, percent] of vectors.losses) {
    assert.equal(outward(double(repr)), four);
    assert.equal(outward(double(repr), 6), six);
    assert.equal(outwardPercent(double(repr)), percent);
  }
  // Broken twin: rounded to nearest, some are told smaller than they are.
  assert.ok(vectors.losses.some(([repr]) => Number(general(double(repr), 4)) < double(repr)));
});

test("what is no loss is refused in the same words as in Python", () => {
  for (const [repr, told] of vectors.no_losses) {
    const error = thrown(() => outward(double(repr)));
    assert.ok(error instanceof InputError);
    assert.equal(error.message, told);
  }
  assert.deepEqual(vectors.no_losses.map(([repr]) => repr), ["nan", "-1.0", "-5e-324", "-inf"]);
});

test("e^epsilon and the probability of the true word are the same fractions, and the same laws are refused", () => {
  let refused = 0;
  for (const { dictionarySize, epsilon, m, odds, truth, refused: told } of vectors.mechanisms) {
    const make = () => new SubsetMechanism({ dictionarySize, epsilon: double(epsilon), m });
    if (told !== undefined) {
      const error = thrown(make);
      assert.ok(error instanceof InputError);
      assert.equal(error.message, told);
      refused++;
      continue;
    }
    const found = make().truth, [numerator, denominator] = truth.map(BigInt);
    assert.equal(found.numerator * denominator, numerator * found.denominator, `epsilon ${epsilon}`);
    if (odds !== null) assert.equal(scaledExponential(double(epsilon)), BigInt(odds), `epsilon ${epsilon}`);
  }
  assert.ok(vectors.mechanisms.length > 150 && refused > 5);
  // Broken twin: the double's exponential, which has 53 bits, is another number for nearly every epsilon.
  const rounded = vectors.mechanisms.filter(({ odds, epsilon }) => {
    return odds && BigInt(odds) !== BigInt(Math.floor(Math.exp(double(epsilon)) * 2 ** 64));
  });
  assert.ok(rounded.length > 100);
});

test("one secret makes the draws that it makes in Python", () => {
  const { secret, fingerprint, pseudonym, contexts, ...expected } = vectors.draws;
  const source = new Secret(bytes(secret));
  assert.equal(source.fingerprint, fingerprint);
  assert.equal(source.pseudonym(new Uint8Array(32)), pseudonym);
  const mechanism = new SubsetMechanism({ dictionarySize: 50, epsilon: 3, m: 4 });
  contexts.map(bytes).forEach((context, i) => {
    assert.deepEqual([...source.bits64(context, 20)].map(String), expected.bits64[i]);
    assert.equal(bernoulli(source, context, { numerator: 1n, denominator: 3n }), expected.third[i]);
    assert.equal(bernoulli(source, context, { numerator: 1n, denominator: 2n }), expected.half[i]);
    assert.deepEqual(subsetBelow(source, context, 12, 8), expected.subsets[i]);
    assert.deepEqual([...randomized(expected.trueWords[i], mechanism, source, context)], expected.words[i]);
  });
});

test("integers are drawn again where a remainder would be biased, as in Python", () => {
  const source = new Secret(bytes(vectors.draws.secret));
  const bounds = vectors.draws.bounds.map(BigInt);
  vectors.draws.contexts.map(bytes).forEach((context, i) => {
    const found = integersBelow(source, context, bounds);
    // Bounds beyond 2^53 are for the test alone: what a double can tell of the draws has to agree.
    assert.deepEqual(found, vectors.draws.integers[i].map(Number));
  });
});

test("epsilons compose as in Python, rounded outward", () => {
  for (const { law: parameters, count, delta, exact, basic } of vectors.compositions) {
    const charges = [{ mechanism: new SubsetMechanism(law(parameters)), features: count }];
    const found = composedEpsilon(charges, delta);
    assert.ok(Math.abs(found - Number(exact)) <= 2e-8 * Number(exact), `${found} and ${exact}`);
    assert.equal(basicEpsilon(charges), Number(basic));
    const halves = [1, 2].map((part) => ({ ...charges[0], features: part === 1 ? count - 1 : 1 }));
    assert.equal(composedEpsilon(halves, delta), found);
  }
});

test("the secret is in no text of it", () => {
  const key = bytes(vectors.draws.secret), source = new Secret(key);
  for (const shown of [JSON.stringify(source), String(source), `${Object.keys(source)}`]) {
    assert.ok(!shown.includes(hex(key)) && !shown.includes(String(key[0])));
  }
  assert.throws(() => new Secret(key.slice(1)), InputError);
});
