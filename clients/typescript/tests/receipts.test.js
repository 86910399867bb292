/** Receipts and the JSON that they are digested in. Oracle: a chain that Python made; forged receipts are refused. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { WireError } from "../dist/errors.js";
import { canonicalJson, memberText } from "../dist/json.js";
import { BEGIN, receiptDigest, receiptOf, requireInChain } from "../dist/receipts.js";
import { vectors } from "./vectors.js";

const chain = vectors.receipts.map(receiptOf);
const links = chain.map(({ number, contentDigest, digest }) => [number, contentDigest, digest]);

test("receipts of Python verify, numbers and texts as they were written", () => {
  assert.equal(chain[0].before, BEGIN);
  assert.equal(chain[1].before, chain[0].digest);
  for (const receipt of chain) {
    requireInChain(receipt, links);
    for (const head of [null, BEGIN, chain[0].digest, chain[1].digest]) requireInChain(receipt, links, head);
  }
  // Broken twin: JSON of parsed values writes 1795535402.0 as 1795535402, which is another text.
  assert.notEqual(JSON.stringify(JSON.parse(vectors.receipts[0])), vectors.receipts[0]);
});

test("a receipt that was changed, forged or taken back is refused", () => {
  const [first, second] = vectors.receipts;
  for (const wrong of [
    first.replace("1234", "1235"),
    first.replace('"number":1', '"number":2'),
    first.replace(BEGIN, "0".repeat(64)),
    first.replace('"content"', '"contents"'),
    "null",
    "[]",
    "{}",
    first.slice(1),
  ]) {
    assert.throws(() => receiptOf(wrong), WireError);
  }
  const [one, two] = chain;
  assert.throws(() => requireInChain(two, links.slice(0, 1)), /not in the server's chain/);
  assert.throws(() => requireInChain(one, links.slice(1)), /broken at 1/);
  assert.throws(() => requireInChain(one, [links[0], [2, links[0][1], links[1][2]]]), /broken at 2/);
  assert.throws(() => requireInChain(one, links, "0".repeat(64)), /rewritten/);
  // A server that takes the first receipt back and makes the chain anew is found out by whoever noted its end.
  const anew = [[1, two.contentDigest, receiptDigest(BEGIN, 1, two.contentDigest)]];
  assert.throws(() => requireInChain({ ...two, number: 1, digest: anew[0][2] }, anew, one.digest), /rewritten/);
  assert.ok(second.includes("1e+22"));
});

test("canonical JSON sorts keys by code points, keeps numbers and escapes all but ASCII", () => {
  const written = ' { "b" : [ 1.0 , -0.0, 1e-7 ] ,\n"a": "\u00e9\\/\u007f" } ';
  assert.equal(canonicalJson(written), '{"a":"\\u00e9/\\u007f","b":[1.0,-0.0,1e-7]}');
  assert.equal(canonicalJson('{"\ud83d\ude00":1,"\uffff":2}'), '{"\\uffff":2,"\\ud83d\\ude00":1}');
  assert.equal(memberText('{"x": {"b": 1, "a": [ ]}}', "x"), '{"a":[],"b":1}');
  assert.equal(memberText('[{"x": 1}]', "x"), null);
  const deep = "[".repeat(200) + "]".repeat(200);
  for (const wrong of ["", "{", "[1,]", "{1:2}", "01", "nul", '"\n"', "1 2", deep, "[NaN]"]) {
    assert.throws(() => canonicalJson(wrong), WireError, wrong);
  }
});
