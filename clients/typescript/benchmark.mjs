/**
 * How long a release of 2,000 features takes, with the bundled dictionary and beside 50,000 features that left before, and queries
 * for tiles: `npm run build`, then `npm run benchmark`.
 */

import { readFileSync } from "node:fs";
import { SKETCH_BYTES, compiledBits, plainBits } from "./dist/differing_bits.js";
import { plainProducts, simdProducts } from "./dist/dot_products.js";
import { Device, MemoryStore, readDictionary } from "./dist/index.js";
import { utf8 } from "./dist/bytes.js";
import { shake256 } from "./dist/digests.js";
import { MOST_REMEMBERED } from "./dist/drawn.js";
import { Hintless, hintlessLayout } from "./dist/tiles/hintless.js";
import { OneServer, hintBytes, oneServerLayout } from "./dist/tiles/one_server.js";
import { Queries } from "./dist/tiles/queries.js";

const FEATURES = 2000, BLOCK = 256, REPEATS = 5;
const dictionary = await readDictionary(readFileSync(new URL("../../src/veil/data/codebook-sift-l2.npz", import.meta.url)));
const descriptors = shake256(utf8("descriptors"), 128 * FEATURES);
const keypoints = Float32Array.from(shake256(utf8("keypoints"), 2 * FEATURES), (value) => value + 0.5);
const image = (turn) => ({
  features: { width: 640, height: 480, count: FEATURES, keypoints, descriptors, normalization: "L2" },
  camera: { model: "SIMPLE_RADIAL", widthPx: 640, heightPx: 480, params: [768, 320, 240, 0], focalDeviation: null },
  digest: new Uint8Array(32).fill(turn),
});

/** The least time of several runs, in milliseconds. */
async function least(run) {
  let found = Infinity;
  for (let turn = 0; turn < REPEATS; turn++) {
    const started = performance.now();
    await run(turn);
    found = Math.min(found, performance.now() - started);
  }
  return Math.round(found);
}

function products(made) {
  const find = made(descriptors, dictionary.stored, 128, BLOCK);
  for (let first = 0; first < dictionary.size; first += BLOCK) for (let row = 0; row < FEATURES; row++) find(row, first, BLOCK);
}

function compared(differing) {
  for (let first = 0; first < MOST_REMEMBERED; first += BLOCK) {
    for (let row = 0; row < FEATURES; row++) differing(row, first, Math.min(BLOCK, MOST_REMEMBERED - first));
  }
}

const device = await Device.open(new MemoryStore());
console.log(`${FEATURES} features, ${dictionary.size} words, least of ${REPEATS} runs, Node.js ${process.version}:`);
console.log(`  products by plain loops  ${await least(() => products(plainProducts))} ms`);
console.log(`  products by SIMD         ${await least(() => products(simdProducts))} ms`);
console.log(`  nearest words            ${await least(() => dictionary.nearest(descriptors))} ms`);
console.log(`  whole release            ${await least((turn) => device.release(image(turn), { epsilon: 8, dictionary }, { purpose: "map" }))} ms`);
const earlier = shake256(utf8("earlier"), SKETCH_BYTES * MOST_REMEMBERED), sketches = earlier.slice(0, SKETCH_BYTES * FEATURES);
for (const [name, differing] of [["plain loops  ", plainBits], ["WebAssembly  ", compiledBits]]) {
  console.log(`  near repeats by ${name}  ${await least(() => compared(differing(sketches, earlier, BLOCK)))} ms`);
}

const TILES = 1024, TILE = 32 << 10, SEED = new Uint8Array(32).fill(7);
const hinted = oneServerLayout(TILES, TILE, 16), layout = hintlessLayout(TILES, TILE, 1);
const schemes = {
  "without a hint": [layout, () => new Hintless(layout, SEED)],
  "with a hint": [hinted, () => new OneServer(hinted, SEED, new Uint8Array(hintBytes(hinted)))],
};
console.log(`A tile of ${TILE} bytes out of ${TILES}:`);
for (const [name, [{ parts, answerBytes }, made]] of Object.entries(schemes)) {
  const scheme = made(), answers = shake256(utf8("answers"), parts * answerBytes), queries = [];
  console.log(`  first query ${name}  ${await least(() => new Queries([5], made()))} ms`);
  console.log(`  another query ${name}  ${await least(() => queries.push(new Queries([5], scheme)))} ms`);
  console.log(`  answer ${name}  ${await least((turn) => queries[turn].decode(answers))} ms`);
}
