/** Device, ledger and budgets. Oracle: the rules of docs/theory/release.md; what must be refused is tried. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { hex } from "../dist/bytes.js";
import { VeilClient } from "../dist/client.js";
import { decode } from "../dist/codec.js";
import { Device } from "../dist/device.js";
import { InputError, ReleaseRefused } from "../dist/errors.js";
import { sha256 } from "../dist/digests.js";
import { MemoryStore } from "../dist/store.js";
import { dictionary, image } from "./planted.js";

const other = () => ({ ...image(), digest: new Uint8Array(32).fill(7) });
const protection = () => ({ epsilon: 6, dictionary: dictionary() });
const ANEW = { purpose: "map" };

test("the same photograph gives the same bytes, today and after the page was loaded again", async () => {
  const store = new MemoryStore(), device = await Device.open(store);
  assert.ok(device.isNew);
  const first = await device.release(image(), protection(), { name: "a photograph" });
  const again = await Device.open(store), second = await again.release(image(), protection());
  assert.ok(!again.isNew);
  assert.equal(hex(second.message), hex(first.message));
  const entries = await again.ledger.entries();
  assert.equal(entries.length, 1, "a repeated release costs nothing");
  assert.equal(entries[0].messageDigest, hex(sha256(first.message)));
  assert.equal(entries[0].name, "a photograph");
  assert.deepEqual(entries[0].mechanism, { dictionarySize: 90, epsilon: 6, m: 2 });
  assert.match(entries[0].parameters, /^words version=1 .* epsilon=6\.0 m=2 .* secret=[0-9a-f]{8} positions$/);
  // Broken twin: a device with another secret releases the photograph differently, which is the repeat attack.
  const stranger = await (await Device.open(new MemoryStore())).release(image(), protection());
  assert.notEqual(hex(stranger.message), hex(first.message));
  assert.equal(decode(first.message).form.dictionary, dictionary().digest);
});

test("another release of the same photograph is refused, and nothing of it is entered", async () => {
  const store = new MemoryStore(), device = await Device.open(store);
  await device.release(image(), protection());
  const fewer = image();
  fewer.features = {
    ...fewer.features,
    count: 39,
    keypoints: fewer.features.keypoints.slice(2),
    descriptors: fewer.features.descriptors.slice(128),
  };
  for (const [given, chosen] of [
    [image(), { ...protection(), epsilon: 5 }],
    [image(), { ...protection(), m: 3 }],
    [image(), { ...protection(), featuresSent: 10 }],
    [image(), { ...protection(), gravity: [0, 1, 0] }],
    [fewer, protection()],
  ]) {
    await assert.rejects(device.release(given, chosen), ReleaseRefused);
    if (given.features.count === 39) await assert.rejects(device.release(given, chosen), /now other features;/);
  }
  assert.equal((await device.ledger.entries()).length, 1);
  await device.release(image(), { ...protection(), epsilon: 5 }, { allowSecond: true });
  const entries = await device.ledger.entries();
  assert.equal(entries.length, 2);
  assert.notEqual(entries[0].releasedAs, entries[1].releasedAs);
  await device.release(other(), protection());
});

test("tabs that release at once enter one release, and one of two different ones is refused", async () => {
  const store = new MemoryStore();
  const [left, right] = await Promise.all([Device.open(store), Device.open(store)]);
  assert.equal(left.fingerprint, right.fingerprint);
  const same = await Promise.all([left, right].map((device) => device.release(image(), protection())));
  assert.equal(hex(same[0].message), hex(same[1].message));
  assert.equal((await left.ledger.entries()).length, 1);
  const different = await Promise.allSettled([
    left.release(other(), protection()),
    right.release(other(), { ...protection(), epsilon: 2 }),
  ]);
  assert.deepEqual(different.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
});

test("a budget refuses what would exceed it before any byte is handed out", async () => {
  const device = await Device.open(new MemoryStore());
  const free = await (await Device.open(new MemoryStore())).release(image(), protection());
  assert.equal(free.basicEpsilon, 6 * 40);
  assert.ok(free.imageEpsilon > 6 && free.imageEpsilon <= free.basicEpsilon);
  await device.ledger.setBudget({ unit: "session", epsilon: 1.5 * free.imageEpsilon, delta: 1e-6 });
  await device.ledger.setBudget({ unit: "image", epsilon: free.imageEpsilon, delta: 1e-6 });
  await device.release(image(), protection());
  await assert.rejects(device.release(other(), protection(), ANEW), /budget of the session.*nothing was released/);
  await assert.rejects(device.release(other(), { ...protection(), epsilon: 9 }, ANEW), /budget of/);
  assert.equal((await device.ledger.entries()).length, 1);
  await device.release(image(), protection());
  await device.ledger.clearBudget("session");
  await device.release(other(), protection(), ANEW);
  await device.ledger.setBudget({ unit: "point", epsilon: 7, delta: 1e-6 });
  const third = { ...image(), digest: new Uint8Array(32).fill(9) };
  await assert.rejects(device.release(third, protection(), ANEW), /a point that every photograph/);
  for (const wrong of [{ epsilon: Infinity }, { epsilon: -1 }, { epsilon: NaN }, { delta: 0 }, { delta: 1 }, { unit: "x" }]) {
    const budget = { unit: "image", epsilon: 1, delta: 1e-6, ...wrong };
    await assert.rejects(device.ledger.setBudget(budget), InputError);
  }
});

test("a lost secret is not replaced by itself", async () => {
  const store = new MemoryStore(), device = await Device.open(store);
  await device.release(image(), protection());
  const [entry] = await device.ledger.entries();
  const orphan = new MemoryStore();
  await orphan.transact(() => ({ result: null, entry }));
  await assert.rejects(Device.open(orphan), ReleaseRefused);
});

test("words that were made from an image of the ledger are refused for every image", async () => {
  const device = await Device.open(new MemoryStore()), own = dictionary(false, [hex(image().digest).slice(0, 16)]);
  await device.release(image(), protection());
  await assert.rejects(device.release(other(), { ...protection(), dictionary: own }), /photograph of your own/);
  await device.release(other(), { ...protection(), dictionary: own, allowPrivateDictionary: true });
});

test("gravity is sent as a unit vector, and refused where it points up", async () => {
  const device = await Device.open(new MemoryStore());
  const sent = await device.release(image(), { ...protection(), gravity: [0, 8, 6] });
  assert.deepEqual(decode(sent.message).gravity, [0, 0.8, 0.6]);
  for (const gravity of [[0, -9, 0], [0, 0, 0], [NaN, 1, 0]]) {
    await assert.rejects(device.release(other(), { ...protection(), gravity }), InputError);
  }
});

test("nothing raw is in the request that sends a release", async () => {
  const requests = [], { features, digest } = image();
  const send = async (url, { headers, body }) => {
    requests.push(Buffer.concat([Buffer.from(`${url}\n${JSON.stringify(headers)}\n`), Buffer.from(body)]));
    return new Response('{"status": "no pose", "reason": "none", "map": "m"}');
  };
  const client = new VeilClient({ url: "https://maps.example.org", token: "t", fetch: send });
  const device = await Device.open(new MemoryStore());
  const { message } = await device.release(image(), protection(), { name: "holiday-in-paris.jpg" });
  assert.equal((await client.localize("m0123456789abcdef", message)).status, "no pose");
  const raw = [Buffer.from("holiday"), Buffer.from(digest), Buffer.from(hex(digest))];
  raw.push(Buffer.from(features.keypoints.buffer, 0, 24)); // positions in the order of detection
  for (let row = 0; row < features.count; row++) {
    const descriptor = features.descriptors.subarray(128 * row, 128 * row + 128);
    raw.push(Buffer.from(descriptor.slice(0, 24)), Buffer.from(Float32Array.from(descriptor.subarray(0, 16)).buffer));
  }
  assert.deepEqual(raw.filter((part) => requests[0].includes(part)), []);
  // Broken twin: a client that sent features would be found out by every one of these.
  const twin = Buffer.concat([...raw]);
  assert.ok(raw.every((part) => twin.includes(part)) && requests.length === 1);
});
