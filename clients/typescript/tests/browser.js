/**
 * What only a browser has: IndexedDB between tabs and after a reload, workers, and compiled code under a page's policy.
 *
 * `tests/client/test_typescript_in_browser.py` serves this page beside the package and waits for what it posts.
 */

import { hex } from "../dist/bytes.js";
import { Device } from "../dist/device.js";
import { Dictionary } from "../dist/dictionary.js";
import { simdProducts } from "../dist/dot_products.js";
import { ReleaseRefused, VeilError } from "../dist/errors.js";
import { readDictionary } from "../dist/codebook_file.js";
import { IndexedDbStore } from "../dist/indexeddb_store.js";
import { MemoryStore } from "../dist/store.js";
import { LocalizerWorker } from "../dist/tiles/workers.js";

const bytesOf = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());
const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function expect(holds, what) {
  if (!holds) throw new Error(what);
}

/** The error that a promise is rejected with; null if it is not. */
const rejection = (promise) => promise.then(() => null, (error) => error);

async function planted() {
  const { image, draws } = JSON.parse((await (await fetch("vectors.json")).text()).replace(/\bNaN\b/g, "null"));
  const keypoints = new Float32Array(fromBase64(image.keypoints).buffer);
  const features = {
    width: 640,
    height: 480,
    count: keypoints.length / 2,
    keypoints,
    descriptors: fromBase64(image.descriptors),
    normalization: "L2",
  };
  const camera = { model: "SIMPLE_RADIAL", widthPx: 640, heightPx: 480, params: image.params, focalDeviation: 0.01 };
  const digest = Uint8Array.from(image.digest.match(/../g), (pair) => parseInt(pair, 16));
  const stored = fromBase64(image.words);
  const dictionary = new Dictionary({ descriptor: "sift", normalization: "L2", dim: 128, stored, digest: image.books[0] });
  const secret = Uint8Array.from(draws.secret.match(/../g), (pair) => parseInt(pair, 16));
  const [release] = image.releases;
  return { image: { features, camera, digest }, dictionary, secret, expected: hex(fromBase64(release.bytes)) };
}

const { image, dictionary, secret, expected } = await planted();
const protection = { epsilon: 6, dictionary };

/** A store that keeps what it is given, forgets nothing of it, and lets nothing come between. */
async function keepsWhatItIsGiven() {
  const store = await IndexedDbStore.open("keeps");
  await store.transact(() => ({ result: null, secret }));
  const first = await (await Device.open(store)).release(image, protection);
  expect(hex(first.message) === expected, "the message is the one that Python makes under this secret");
  store.close();
  const closed = await rejection(store.transact(() => ({ result: null })));
  expect(closed instanceof VeilError, "a closed store says so");
  const again = await IndexedDbStore.open("keeps"), device = await Device.open(again);
  expect(!device.isNew, "the secret is found again");
  expect(hex((await device.release(image, protection)).message) === expected, "the same bytes after the store was opened anew");
  expect((await device.ledger.entries()).length === 1, "a repeated release costs nothing");
  expect((await rejection(device.release(image, { ...protection, epsilon: 5 }))) instanceof ReleaseRefused, "a second release");
  expect((await device.ledger.entries()).length === 1, "what was refused is not entered");
  await device.ledger.setBudget({ unit: "session", epsilon: 1, delta: 1e-6 });
  const other = { ...image, digest: new Uint8Array(32) };
  expect((await rejection(device.release(other, protection))) instanceof ReleaseRefused, "beyond the budget");
}

async function tabsTakeTurns() {
  const tabs = await Promise.all([1, 2, 3].map(() => IndexedDbStore.open("tabs")));
  const devices = await Promise.all(tabs.map((tab) => Device.open(tab)));
  expect(new Set(devices.map(({ fingerprint }) => fingerprint)).size === 1, "one secret, whichever tab made it");
  const outcomes = await Promise.allSettled(
    devices.map((device, i) => device.release(image, { ...protection, epsilon: 6 + i })),
  );
  expect(outcomes.filter(({ status }) => status === "fulfilled").length === 1, "one of three different releases");
  expect((await devices[0].ledger.entries()).length === 1, "and one entry");
  expect((await counted(tabs)) === 60, "no change of another tab is lost");
  const thrown = await rejection(tabs[0].transact(() => { throw new RangeError("no"); }));
  expect(thrown instanceof RangeError, "what a decision throws is thrown");
  const half = await rejection(tabs[0].transact(() => ({ result: null, sendings: [1, () => {}] })));
  expect(half !== null, "what cannot be kept is an error");
  const after = await tabs[1].transact((held) => ({ result: held.sendings.length }));
  expect(after === 60, "and changes nothing");
}

/** A frame shows what the one before did: its words are in the store, which an older layout lacked, and tabs share them. */
async function framesKnowEachOther() {
  await madeBefore("older", ["secrets", "entries", "budgets", "sendings"]);
  const [left, right] = await Promise.all([1, 2].map(() => IndexedDbStore.open("older")));
  const tabs = await Promise.all([left, right].map((store) => Device.open(store)));
  expect(tabs.every(({ isNew }) => !isNew), "the secret of the older layout is there");
  const made = await Promise.all([tabs[0].release(image, protection), tabs[1].release(frameOf(1), protection)]);
  expect(made.map(({ shownBefore }) => shownBefore).sort((a, b) => a - b).join() === "0,40", "one of two has the other's words");
  left.close();
  const later = await (await Device.open(await IndexedDbStore.open("older"))).release(frameOf(2), protection);
  expect(later.shownBefore === 40, "and so has a frame after a reload");
}

/** The picture of another digest. */
function frameOf(number) {
  return { ...image, digest: new Uint8Array(32).fill(number) };
}

/** A database of layout 1 with some object stores and a secret. */
function madeBefore(name, stores) {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => {
      for (const store of stores) request.result.createObjectStore(store, { autoIncrement: true });
      request.transaction.objectStore("secrets").add(secret);
    };
    request.onsuccess = () => resolve(request.result.close());
    request.onerror = () => reject(request.error);
  });
}

/** How many of 60 changes that several stores make at once are kept. */
async function counted(stores) {
  const count = (held) => ({ result: null, sendings: [...held.sendings, held.sendings.length] });
  await Promise.all(stores.flatMap((store) => Array.from({ length: 20 }, () => store.transact(count))));
  return new Set(await stores[0].transact((held) => ({ result: held.sendings }))).size;
}

/** Broken twin: a store that reads in one transaction and writes in another loses changes, which the count shows. */
async function theTwinIsCaught() {
  const stores = await Promise.all([1, 2, 3].map(() => IndexedDbStore.open("twin")));
  const torn = stores.map((store) => ({
    async transact(decide) {
      const change = decide(await store.transact((held) => ({ result: held })));
      return store.transact(() => change);
    },
  }));
  expect((await counted(torn)) < 60, "changes are lost between reading and writing");
}

/** The bundled dictionary, and how long 2,000 features take in it. */
async function searchesFast() {
  const bundled = await readDictionary(await bytesOf("../codebook.npz"));
  const descriptors = new Uint8Array(2000 * 128);
  for (let at = 0; at < descriptors.length; at += 1 << 16) {
    crypto.getRandomValues(descriptors.subarray(at, Math.min(at + (1 << 16), descriptors.length)));
  }
  expect(simdProducts(descriptors, bundled.stored, 128, 256) !== null, "SIMD under 'wasm-unsafe-eval'");
  const started = performance.now();
  bundled.nearest(descriptors);
  return { words: bundled.size, milliseconds: performance.now() - started };
}

/** A worker localizes as Python does: queries that get a pose, and one of each kind that gets none. */
async function localizesAsPythonDoes() {
  const { manifest, binary, records, queries } = await (await fetch("localizer.json")).json();
  const size = JSON.parse(manifest).tile_bytes;
  const worker = new LocalizerWorker({ kind: "open", text: manifest, binary: fromBase64(binary) });
  for (const { name, camera, near, wanted, answer, ...query } of queries) {
    const keypoints = new Float32Array(fromBase64(query.keypoints).buffer), descriptors = fromBase64(query.descriptors);
    const { widthPx: width, heightPx: height } = camera, count = keypoints.length / 2;
    const photograph = { camera, features: { width, height, count, keypoints, descriptors, normalization: "L2" } };
    await worker.run(async (done) => {
      const looked = await done({ kind: "look", photograph, ...(near === null ? {} : { near: { place: near } }) }, 60);
      expect(looked.wanted.join() === wanted.join(), `${name}: the tiles`);
      const tiles = wanted.map((index) => [index, fromBase64(records[index]).subarray(0, size)]);
      const { pose } = await done({ kind: "localize", tiles, options: { maxSeconds: 60 } }, 90);
      expect(pose.status === answer.status, `${name}: ${pose.reason ?? "there is a pose"}`);
      if (pose.status === "no pose") return;
      const gap = Math.hypot(...pose.camFromWorld.translation.map((value, i) => value - answer.camFromWorld.translation[i]));
      expect(gap < 1e-3 && pose.evidence.inliers === answer.inliers, `${name}: the pose`);
    });
  }
  const refused = await rejection(worker.run((done) => done({ kind: "look", photograph: { camera: {}, features: {} } }, 60)));
  expect(refused instanceof VeilError, "what cannot be used is an error");
  await worker.close();
}

const said = { passed: [], failed: null, search: null };
try {
  for (const test of [keepsWhatItIsGiven, tabsTakeTurns, theTwinIsCaught, framesKnowEachOther, localizesAsPythonDoes]) {
    await test();
    said.passed.push(test.name);
  }
  said.search = await searchesFast();
  expect((await Device.open(new MemoryStore())).isNew, "a page without storage");
} catch (error) {
  said.failed = `${error.name}: ${error.message}\n${error.stack}`;
}
await fetch("/said", { method: "POST", body: JSON.stringify(said) });
