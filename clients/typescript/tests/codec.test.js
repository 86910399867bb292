/** Messages and packed words. Oracle: the bytes that Python writes, and what it says of damaged and hostile ones. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { blake2b } from "../dist/digests.js";
import { concatenated, hex, utf8 } from "../dist/bytes.js";
import { decode, encode, messageLength } from "../dist/codec.js";
import { InputError, WireError } from "../dist/errors.js";
import { sanitization } from "../dist/geopose.js";
import { readHead } from "../dist/head.js";
import { shortest } from "../dist/numbers.js";
import { packed, riceWidth, unpacked } from "../dist/packing.js";
import { bytes, fromBase64, thrown, vectors } from "./vectors.js";

const sealed = (body) => concatenated(body, blake2b(body, { size: 16, person: utf8("veil wire v1") }));

test("words are packed into the same bytes, and come back", () => {
  for (const { ids, packed: expected, width, ...shape } of vectors.packings) {
    assert.equal(riceWidth(shape.dictionarySize, shape.m), width);
    const found = packed(Uint32Array.from(ids), shape);
    assert.equal(hex(found), hex(fromBase64(expected)));
    assert.deepEqual([...unpacked(found, shape)], ids);
  }
});

test("messages of every camera and kind are read, and written as the same bytes", () => {
  for (const { bytes: text, facts } of vectors.messages) {
    const message = fromBase64(text), found = decode(message);
    const { camera, form } = found, { space, mechanism } = form;
    const gravity = found.kind === "lines" ? found.lines.gravity : found.gravity;
    assert.deepEqual(
      {
        kind: found.kind,
        camera: [camera.model, camera.widthPx, camera.heightPx, camera.params, camera.focalDeviation],
        space: [space.descriptor, space.normalization, space.dim, space.codebook, space.ditherSteps],
        law: [mechanism.dictionarySize, shortest(mechanism.epsilon), mechanism.m],
        dictionary: form.dictionary,
        ids: [...form.ids],
        gravity,
        seen: [...(found.kind === "lines" ? found.lines.coefficients : found.keypoints)],
        aligned: found.kind === "lines" ? found.lines.aligned : null,
      },
      facts,
    );
    assert.equal(hex(encode(found)), hex(message));
    assert.equal(messageLength(readHead(message)), message.length);
  }
  assert.equal(vectors.messages.length, 9 * 4 + 1);
});

test("deviations of focal lengths are rounded up to a class, and what is known less well is a guess", () => {
  const good = decode(fromBase64(vectors.messages[0].bytes));
  const sent = [[null, null], [1e-4, 0.01], [0.01, 0.01], [0.011, 0.02], [0.05, 0.05], [0.07, 0.1], [0.1, 0.1], [0.11, null], [3, null]];
  for (const [focalDeviation, expected] of sent) {
    assert.equal(decode(encode({ ...good, camera: { ...good.camera, focalDeviation } })).camera.focalDeviation, expected);
  }
});

test("headers of every kind are read: their length, and what was done to the features", () => {
  const kinds = vectors.heads.map(({ bytes: head, kind, length, sanitization: terms }) => {
    const found = readHead(bytes(head));
    assert.deepEqual([found.kind, messageLength(found), sanitization(found)], [kind, length, terms]);
    return kind;
  });
  assert.deepEqual([...new Set(kinds)].sort(), [1, 2, 3, 4]);
});

test("damaged and hostile messages are refused as Python refuses them, and no others", () => {
  const bases = vectors.refusals.bases.map(bytes);
  let refused = 0;
  for (const [base, at, put, isSealed, told] of vectors.refusals.cases) {
    let message = bytes(put);
    if (base !== null) {
      message = bases[base].slice();
      message.set(bytes(put).subarray(0, message.length - at), at);
      if (isSealed) message = sealed(message.subarray(0, message.length - 16));
    }
    const error = thrown(() => decode(message));
    assert.equal(error?.message ?? null, told, `${base} ${at} ${put}`);
    if (error === null) {
      assert.equal(hex(encode(decode(message))), hex(message));
      continue;
    }
    assert.ok(error instanceof WireError);
    refused++;
  }
  assert.ok(refused > 200);
});

test("what would not be read back is not written", () => {
  const good = decode(fromBase64(vectors.messages[0].bytes)), lined = decode(fromBase64(vectors.messages[2].bytes));
  const { form, keypoints } = good;
  const broken = [
    { ...good, form: { ...form, ids: form.ids.slice().reverse() } },
    { ...good, form: { ...form, ids: new Uint32Array(0) }, keypoints: new Float32Array(0) },
    { ...good, form: { ...form, ids: form.ids.map((id) => id + 1000) } },
    { ...good, form: { ...form, dictionary: "0".repeat(64) } },
    { ...good, keypoints: keypoints.map(() => NaN) },
    { ...good, keypoints: keypoints.slice(2) },
    { ...good, keypoints: keypoints.map((value) => value + 1000) },
    { ...good, gravity: [0, 2, 0] },
    { ...good, camera: { ...good.camera, params: [1e-5, ...good.camera.params.slice(1)] } },
    { ...good, camera: { ...good.camera, model: "THIN_PRISM" } },
    ...[0, -0.01, NaN, Infinity].map((focalDeviation) => ({ ...good, camera: { ...good.camera, focalDeviation } })),
    { ...lined, lines: { ...lined.lines, coefficients: lined.lines.coefficients.map((value) => 2 * value) } },
    { ...lined, lines: { ...lined.lines, aligned: lined.lines.aligned.map(() => true) } },
  ];
  for (const message of broken) assert.throws(() => encode(message), InputError);
});
