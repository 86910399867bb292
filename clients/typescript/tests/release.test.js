/** Releases, dictionaries, pictures. Oracle: whole messages that Python makes of the same image under the same secret. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { hex, utf8 } from "../dist/bytes.js";
import { encode } from "../dist/codec.js";
import { readDictionary } from "../dist/codebook_file.js";
import { InputError, ReleaseRefused, RuntimeLacks } from "../dist/errors.js";
import { SubsetMechanism } from "../dist/mechanism.js";
import { grayOf, imageDigest } from "../dist/picture.js";
import { Secret, entropy } from "../dist/randomness.js";
import { shake256 } from "../dist/digests.js";
import { privatizeWords } from "../dist/words.js";
import { dictionary, image, planted, secret } from "./planted.js";
import { bytes, fromBase64, law, vectors } from "./vectors.js";

const CHOICES = { featuresSent: null, gravity: null, allowPrivateDictionary: false };

test("one image under one secret is released as the bytes that Python releases", () => {
  for (const { floats, law: parameters, sent, text, order, missing, error, bytes: expected } of planted.releases) {
    const mechanism = new SubsetMechanism(law(parameters));
    const choices = { ...CHOICES, mechanism, dictionary: dictionary(floats), featuresSent: sent };
    const made = privatizeWords(image(), choices, secret);
    assert.equal(made.parameters.text, text);
    assert.deepEqual([...made.order], order);
    assert.equal(made.missing, missing);
    made.quantizationError.forEach((value, i) => assert.ok(Math.abs(value - Number(error[i])) < 2e-6));
    assert.equal(hex(encode(made.upload)), hex(fromBase64(expected)));
  }
  // Broken twin: another secret, or another image's digest, gives other bytes.
  const mechanism = new SubsetMechanism(law(planted.releases[0].law));
  const choices = { ...CHOICES, mechanism, dictionary: dictionary() };
  for (const [other, key] of [
    [image(), new Secret(new Uint8Array(32))],
    [{ ...image(), digest: new Uint8Array(32) }, secret],
  ]) {
    assert.notEqual(hex(encode(privatizeWords(other, choices, key).upload)), hex(fromBase64(planted.releases[0].bytes)));
  }
});

test("what cannot be released is refused", () => {
  const mechanism = new SubsetMechanism({ dictionarySize: 90, epsilon: 6, m: 2 });
  const choices = { ...CHOICES, mechanism, dictionary: dictionary() };
  const { features, ...rest } = image();
  const flawed = [
    [{ ...rest, features: { ...features, count: 0 } }, choices],
    [{ ...rest, features: { ...features, normalization: "L1_ROOT" } }, choices],
    [{ ...rest, features: { ...features, descriptors: features.descriptors.slice().fill(0, 0, 128) } }, choices],
    [{ ...rest, features: { ...features, width: 641 } }, choices],
    [{ ...rest, features, digest: new Uint8Array(31) }, choices],
    [image(), { ...choices, featuresSent: 0 }],
    [image(), { ...choices, mechanism: new SubsetMechanism({ dictionarySize: 91, epsilon: 6, m: 2 }) }],
  ];
  for (const [given, chosen] of flawed) assert.throws(() => privatizeWords(given, chosen, secret), InputError);
  const own = { ...choices, dictionary: dictionary(false, [planted.digest.slice(0, 16)]) };
  assert.throws(() => privatizeWords(image(), own, secret), ReleaseRefused);
  privatizeWords(image(), { ...own, allowPrivateDictionary: true }, secret);
});

const { VEIL_CODEBOOK: file, VEIL_SMALL: small, VEIL_COLUMNS: columns, VEIL_RELEASE: release } = process.env;
const skip = !(file && small && columns && release) && "VEIL_CODEBOOK, VEIL_SMALL, VEIL_COLUMNS, VEIL_RELEASE do not name files";

test("a damaged codebook's file is refused, wherever it is damaged", { skip }, async () => {
  const data = new Uint8Array(readFileSync(small)), expected = dictionary(true);
  const found = await readDictionary(data);
  assert.deepEqual([found.digest, found.size, found.stored], [expected.digest, 90, expected.stored]);
  let refused = 0;
  for (let turn = 0; turn < 400; turn++) {
    const [high, low, value, how] = shake256(utf8(`damage ${turn}`), 4), damaged = data.slice();
    // Half of the damage hits the archive's directory and the last arrays' headers.
    const at = how & 1 ? (high * 256 + low) % data.length : data.length - 1 - ((high * 256 + low) % 1500);
    damaged[at] ^= value || 1;
    const error = await readDictionary(how & 2 ? damaged : damaged.slice(0, at)).then(() => null, (thrown) => thrown);
    if (error === null) continue; // times of members, and checksums that the hash makes needless
    assert.ok(error instanceof InputError, `${turn}: ${error.stack}`);
    refused++;
  }
  assert.ok(refused > 250, String(refused));
});

test("arrays whose columns come first are read as Python reads them", { skip }, async () => {
  // The hash is of rows, so that it tells whether they were read as such.
  const found = await readDictionary(new Uint8Array(readFileSync(columns)));
  assert.deepEqual(found.stored, dictionary(true).stored);
  assert.notEqual(found.digest, dictionary(true).digest, "a PCA is part of it");
});

test("a good codebook is read where deflate-raw is not known, and what is missing is named where nothing unpacks", { skip }, async () => {
  const data = new Uint8Array(readFileSync(file)), { DecompressionStream, crypto } = globalThis;
  const old = class extends DecompressionStream {
    constructor(format) {
      if (format === "deflate-raw") throw new TypeError("The argument 'format' is invalid"); // Node.js before 20.12
      super(format);
    }
  };
  const put = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  const lacks = (error) => error instanceof RuntimeLacks && /Node\.js 20 or later/.test(error.message) && !/damaged|again/.test(error.message);
  try {
    put("DecompressionStream", old);
    assert.equal((await readDictionary(data)).size, 16384);
    put("DecompressionStream", undefined);
    await assert.rejects(readDictionary(data), (error) => lacks(error) && error.message.includes("DecompressionStream"));
    put("crypto", undefined);
    assert.throws(entropy, (error) => lacks(error) && error.message.includes("crypto"));
  } finally {
    put("DecompressionStream", DecompressionStream);
    put("crypto", crypto);
  }
});

test("a codebook's file is read, its hash verified, and a release with it is Python's", { skip }, async () => {
  const data = new Uint8Array(readFileSync(file)), book = await readDictionary(data);
  assert.equal(book.size, 16384);
  const { features, digest, params, key, bytes: expected } = JSON.parse(readFileSync(release, "utf8"));
  const keypoints = new Float32Array(fromBase64(features[0]).buffer), descriptors = fromBase64(features[1]);
  const given = {
    features: { width: 640, height: 480, count: keypoints.length / 2, keypoints, descriptors, normalization: "L2" },
    camera: { model: "SIMPLE_RADIAL", widthPx: 640, heightPx: 480, params, focalDeviation: 0.01 },
    digest: bytes(digest),
  };
  const mechanism = new SubsetMechanism({ dictionarySize: book.size, epsilon: 6, m: 2 });
  const made = privatizeWords(given, { ...CHOICES, mechanism, dictionary: book, featuresSent: 10 }, new Secret(bytes(key)));
  assert.equal(hex(encode(made.upload)), expected);
  const damaged = data.slice();
  damaged[damaged.length >> 1] ^= 1;
  for (const wrong of [damaged, data.slice(0, 1000), new Uint8Array(100), data.slice(0, -30)]) {
    await assert.rejects(readDictionary(wrong), InputError);
  }
});

test("a picture's digest is Python's, and gray is its luma", () => {
  const rgb = fromBase64(vectors.picture.rgb), rgba = new Uint8ClampedArray(4 * 600).fill(255);
  for (let i = 0; i < 600; i++) rgba.set(rgb.subarray(3 * i, 3 * i + 3), 4 * i);
  assert.equal(hex(imageDigest(rgba, 30, 20)), vectors.picture.digest);
  assert.notEqual(hex(imageDigest(rgba, 20, 30)), vectors.picture.digest);
  grayOf(rgba).forEach((value, i) => {
    const [red, green, blue] = rgb.subarray(3 * i);
    assert.ok(Math.abs(value - (0.299 * red + 0.587 * green + 0.114 * blue)) <= 0.5 + 1e-4);
  });
  assert.deepEqual([...grayOf(Uint8Array.of(0, 0, 0, 255, 255, 255, 255, 255))], [0, 255]);
});
