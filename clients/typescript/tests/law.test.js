/** The law of the subsets that are drawn. Oracle: the mechanism's law (docs/theory/words.md, Eq. 1), by chi-square. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { concatenated, utf8 } from "../dist/bytes.js";
import { SubsetMechanism } from "../dist/mechanism.js";
import { Secret, bernoulli, subsetBelow } from "../dist/randomness.js";
import { randomized } from "../dist/words.js";

const K = 6, M = 2, EPSILON = 1.5, DRAWS = 12_000;
const SECRET = new Secret(utf8("a secret of the test of the law".padEnd(32, ".")));
const MECHANISM = new SubsetMechanism({ dictionarySize: K, epsilon: EPSILON, m: M });

/** All subsets of M = 2 words, as texts. */
const SUBSETS = [...Array(K).keys()].flatMap((a) => [...Array(K).keys()].slice(a + 1).map((b) => `${a},${b}`));

/** Probability of a subset by Eq. 1: K e^(epsilon [v in Z]) / ((m e^epsilon + K - m) C(K, m)). */
function pmf(subset, trueWord, epsilon = EPSILON) {
  const odds = subset.split(",").includes(String(trueWord)) ? Math.exp(epsilon) : 1;
  return (K * odds) / ((M * Math.exp(epsilon) + K - M) * SUBSETS.length);
}

/** Chi-square of the draws of a sampler, as standard deviations of a normal law (Wilson and Hilferty 1931). */
function deviation(sampler, trueWord, name) {
  const counts = new Map(SUBSETS.map((subset) => [subset, 0]));
  for (let i = 0; i < DRAWS; i++) {
    const drawn = String([...sampler(trueWord, utf8(`${name} ${trueWord} ${i}`))]);
    counts.set(drawn, (counts.get(drawn) ?? NaN) + 1);
  }
  const chi = SUBSETS.reduce((sum, subset) => {
    const expected = DRAWS * pmf(subset, trueWord);
    return sum + (counts.get(subset) - expected) ** 2 / expected;
  }, 0);
  const freedom = SUBSETS.length - 1, spread = 2 / (9 * freedom);
  return counts.size === SUBSETS.length ? (Math.cbrt(chi / freedom) - (1 - spread)) / Math.sqrt(spread) : Infinity;
}

/** The sampler with a mistake: `shift` leaves the true word out of the others, `mechanism` is another law. */
function flawed({ isShifted = true, mechanism = MECHANISM, source = SECRET }) {
  return (trueWord, context) => {
    const isKept = bernoulli(source, concatenated(utf8("truth|"), context), mechanism.truth);
    const others = subsetBelow(source, concatenated(utf8("others|"), context), K - 1, M - Number(isKept));
    const drawn = others.map((word) => (isShifted && word >= trueWord ? word + 1 : word));
    return Uint32Array.from(isKept ? [...drawn, trueWord] : drawn).sort();
  };
}

test("subsets are drawn by the law: neither farther from it nor nearer to it than chance allows", () => {
  assert.ok(Math.abs(SUBSETS.reduce((sum, subset) => sum + pmf(subset, 2), 0) - 1) < 1e-12);
  for (const trueWord of [0, 2, K - 1]) {
    const found = deviation((word, context) => randomized(word, MECHANISM, SECRET, context), trueWord, "law");
    assert.ok(Math.abs(found) < 3.9, `word ${trueWord}: ${found}`);
  }
});

test("broken twins are caught", () => {
  const stronger = new SubsetMechanism({ dictionarySize: K, epsilon: EPSILON * 1.15, m: M });
  assert.ok(deviation(flawed({ mechanism: stronger }), 2, "law") > 6, "an epsilon that is 15 % too large");
  assert.ok(!(deviation(flawed({ isShifted: false }), 2, "law") < 6), "the true word among the others");
  assert.ok(Math.abs(deviation(flawed({}), 2, "law")) < 3.9, "the twin without a mistake is the sampler");
  // Subsets in turn, each as often as the law says, have no chance in them: their counts are too near to what is expected.
  let turn = 0;
  const even = () => {
    let rest = ((turn++ % DRAWS) + 0.5) / DRAWS;
    return SUBSETS.find((subset) => (rest -= pmf(subset, 2)) < 0).split(",").map(Number);
  };
  assert.ok(deviation(even, 2, "law") < -6, "draws that are no draws");
});
