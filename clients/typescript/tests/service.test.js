/**
 * Both clients against a real server, which `tests/client/test_typescript.py` starts and describes in VEIL_SERVICE: its address
 * and token, a map with a place on Earth, and messages that Python made. What Python has to compare is written to VEIL_FOUND.
 */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { hex } from "../dist/bytes.js";
import { VeilClient } from "../dist/client.js";
import { readDictionary } from "../dist/codebook_file.js";
import { VeilProblem } from "../dist/connection.js";
import { Device } from "../dist/device.js";
import { WireError } from "../dist/errors.js";
import { GeoPoseClient, geoposeRequest } from "../dist/geopose.js";
import { sha256 } from "../dist/digests.js";
import { MemoryStore } from "../dist/store.js";
import { bytes, fromBase64 } from "./vectors.js";

const service = process.env.VEIL_SERVICE ? JSON.parse(readFileSync(process.env.VEIL_SERVICE, "utf8")) : null;
const skip = service === null && "VEIL_SERVICE does not describe a server";
const found = {};

test("a service is used from maps to a verified deletion", { skip }, async (t) => {
  const { url, token, map, empty, query, extra } = service;
  const store = new MemoryStore(), client = new VeilClient({ url, token, store });
  const message = fromBase64(query);

  await t.test("policy, maps and usage", async () => {
    assert.equal((await client.policy()).message_type, "application/vnd.veil.message");
    assert.ok((await client.maps()).some(({ id, mapped }) => id === map && mapped));
    assert.equal((await client.map(map)).name, "door");
    assert.equal((await client.map("door")).id, map);
    assert.ok((await client.usage()).used);
  });

  await t.test("a message that Python made is localized, and one that shows nothing of the map has the reason", async () => {
    found.localized = await client.localize(map, message);
    assert.equal(found.localized.status, "localized");
    const none = await client.localize(empty, message).catch((error) => error);
    assert.ok(none instanceof VeilProblem || none.status === "no pose", String(none));
    const other = await client.localize(map, fromBase64(service.elsewhere));
    assert.equal(other.status, "no pose");
    assert.ok(other.reason.length > 20);
  });

  await t.test("a contribution is entered, deleted, and its receipt is in the chain", async () => {
    const told = [];
    const accepted = await client.contribute(empty, fromBase64(extra));
    assert.equal(accepted.messageSha256, hex(sha256(fromBase64(extra))));
    const ended = await client.wait(accepted.job, { told: ({ state }) => told.push(state), everyMs: 50 });
    assert.ok(["done", "failed"].includes(ended.state) && told.length > 0);
    const again = await client.contribute(empty, fromBase64(extra));
    assert.equal(again.contribution, accepted.contribution, "the same message is one contribution");
    assert.ok((await client.contributions()).some(({ contribution }) => contribution === accepted.contribution));
    const receipt = await client.delete(accepted.contribution);
    assert.equal(receipt.content.message_sha256, accepted.messageSha256);
    await client.verify(receipt);
    assert.ok((await client.receipts()).length >= receipt.number);
    // Broken twin: a receipt of the same number that says something else is in no chain.
    await assert.rejects(client.verify({ ...receipt, digest: "0".repeat(64) }), WireError);
    await assert.rejects(client.contribution(accepted.contribution), VeilProblem);
    assert.deepEqual(await store.transact((held) => ({ result: held.sendings })), []);
  });

  await t.test("refusals are problems with a kind", async () => {
    const wrong = new VeilClient({ url, token: "veil_wrong" });
    const error = await wrong.maps().catch((thrown) => thrown);
    assert.deepEqual([error.status, error.kind], [401, "unauthorized"]);
    assert.equal((await client.map("m0").catch((thrown) => thrown)).kind, "not-found");
    const damaged = message.slice();
    damaged[damaged.length - 1] ^= 1;
    assert.equal((await client.localize(map, damaged).catch((thrown) => thrown)).kind, "damaged");
  });

  await t.test("the GeoPoseProtocol gives the same pose on Earth", async () => {
    const geopose = new GeoPoseClient({ url, token });
    assert.ok(await geopose.isRunning());
    const answer = await geopose.localize(message, map);
    assert.equal(answer.status, "localized");
    const { positionM, orientationDeg } = answer.accuracy;
    assert.deepEqual([positionM, orientationDeg], [null, null]); // a guarded map tells a pose alone
    assert.ok(Math.abs(answer.geopose.position.lat - found.localized.geopose.position.lat) < 1e-4);
    const turn = { x: 1, y: 0, z: 0, w: 0 }, still = { x: 0, y: 0, z: 0, w: 1 };
    const readings = {
      accelerometer: { x: 0, y: 9.8, z: 0, sensorFromRig: turn, cameraFromRig: still },
      geolocation: { latitude: 55.7, longitude: 13.2 },
    };
    assert.equal((await geopose.localize(message, null, readings)).status, "localized");
    const none = await geopose.localize(fromBase64(service.elsewhere), map);
    assert.equal(none.status, "no pose");
    found.request = geoposeRequest(message, readings);
  });

  await t.test("words that are drawn here are accepted, under the secret that Python has", async () => {
    const { secret, features, codebook, epsilon } = service.release;
    const device = await Device.open(await held(bytes(secret)));
    const keypoints = new Float32Array(fromBase64(features.keypoints).buffer), [width, height] = features.size;
    const image = {
      features: {
        width,
        height,
        count: keypoints.length / 2,
        keypoints,
        descriptors: fromBase64(features.descriptors),
        normalization: "L2",
      },
      camera: { model: features.model, widthPx: width, heightPx: height, params: features.params, focalDeviation: 0.01 },
      digest: bytes(features.digest),
    };
    const { dictionaries } = await client.map(service.words);
    assert.equal(dictionaries.length, 1);
    const dictionary = await client.dictionary(dictionaries[0]);
    assert.equal(dictionary.digest, (await readDictionary(new Uint8Array(readFileSync(codebook)))).digest);
    assert.equal((await client.dictionary("0".repeat(64)).catch((thrown) => thrown)).kind, "not-found");
    const started = performance.now();
    const released = await device.release(image, { epsilon, dictionary });
    found.seconds = (performance.now() - started) / 1000;
    found.message = Buffer.from(released.message).toString("base64");
    found.imageEpsilon = released.imageEpsilon;
    found.words = await client.localize(service.words, released.message);
  });

  writeFileSync(process.env.VEIL_FOUND, JSON.stringify(found));
});

/** A store that holds a secret. */
async function held(secret) {
  const store = new MemoryStore();
  await store.transact(() => ({ result: null, secret }));
  return store;
}
