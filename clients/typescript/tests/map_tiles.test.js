/**
 * Localization in tiles from two servers, which are simulated by the formula of the exit (docs/theory/pir.md, Eq. 1-2). Oracles:
 * the poses that Python finds in the same tiles (`localizer.json`), and the requests, which must not depend on the photograph.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { VeilClient } from "../dist/client.js";
import { MapTiles } from "../dist/tiles/access.js";
import { MemoryTileCache } from "../dist/tiles/cache.js";
import { fromBase64 } from "./vectors.js";

const vectors = JSON.parse(readFileSync(new URL("localizer.json", import.meta.url), "utf8"));
const facts = JSON.parse(vectors.manifest), records = vectors.records.map(fromBase64);
const URLS = ["https://a.example.org/v1/tiles/street", "https://b.example.org/v1/tiles/street"];
const opened = [];
after(() => Promise.all(opened.map((tiles) => tiles.close())));

/** Two servers, and what was sent to them; `change` may alter the answer to a fetch. */
function servers(change = (body) => body) {
  const sent = [];
  const fetch = async (target, init) => {
    const url = new URL(target), name = url.pathname.split("/street/")[1];
    sent.push([url.origin, init.method, name, init.body?.length ?? 0, JSON.stringify(init.headers ?? {})].join(" "));
    if (name === "exits.json") {
      const exits = { region: { bytes: records.length * facts.record_bytes }, "two-servers": {} };
      return Response.json({ name: "street", version: vectors.version, exits });
    }
    if (name.endsWith("manifest.json")) return new Response(vectors.manifest);
    if (name.endsWith("manifest.bin")) return new Response(fromBase64(vectors.binary));
    assert.equal(name, `${vectors.version}/answers/two-servers`);
    const size = Math.ceil(records.length / 8), body = new Uint8Array((init.body.length / size) * facts.record_bytes);
    for (let query = 0; query * size < init.body.length; query++) {
      records.forEach((record, index) => {
        if (!((init.body[query * size + (index >> 3)] >> (index & 7)) & 1)) return;
        record.forEach((byte, at) => (body[query * facts.record_bytes + at] ^= byte));
      });
    }
    return new Response(change(body, url.origin));
  };
  return { sent, fetch };
}

async function open(options) {
  const tiles = await MapTiles.open(URLS, { exit: "two-servers", ...options });
  opened.push(tiles);
  return tiles;
}

function photograph(name) {
  const query = vectors.queries.find((one) => one.name === name), { camera } = query;
  const keypoints = new Float32Array(fromBase64(query.keypoints).buffer), descriptors = fromBase64(query.descriptors);
  const size = { width: camera.widthPx, height: camera.heightPx, count: keypoints.length / 2 };
  const features = { ...size, keypoints, descriptors, normalization: "L2" };
  return { photograph: { camera, features }, query };
}

function samePose(pose, expected) {
  assert.equal(pose.status, "localized", pose.reason);
  const { translation } = pose.camFromWorld;
  expected.camFromWorld.translation.forEach((value, i) => assert.ok(Math.abs(value - translation[i]) < 1e-3));
  assert.equal(pose.evidence.inliers, expected.inliers);
  assert.ok(Math.abs(pose.geopose.position.lat - expected.geopose.position.lat) < 1e-6);
  assert.ok(pose.centerDeviation > 0 && pose.centerDeviation < 0.1 && pose.covariance.length === 6);
}

test("the pose is Python's, and requests are the same whether there is one or not", async () => {
  const { sent, fetch } = servers(), tiles = await open({ fetch });
  assert.match(tiles.guarantee, /at least 1 of 2 servers/);
  assert.equal(sent.filter((request) => request.includes("manifest")).length, 2);
  const views = [];
  for (const name of ["as taken", "another place", "better in a mirror", "few features"]) {
    sent.length = 0;
    const { photograph: own, query } = photograph(name), answer = await tiles.localize(own);
    assert.deepEqual(answer.wanted, query.wanted);
    assert.equal(answer.asked, facts.asked);
    assert.equal(answer.refused.size, 0);
    if (query.answer.status === "localized") samePose(answer.pose, query.answer);
    else assert.equal(answer.pose.status, "no pose");
    views.push([...sent].sort());
  }
  assert.equal(views[0].length, 2);
  for (const view of views) assert.deepEqual(view, views[0]);
});

test("where the device is about chooses tiles", async () => {
  const { fetch } = servers(), tiles = await open({ fetch }), { photograph: own, query } = photograph("near a place");
  samePose((await tiles.localize(own, { near: query.near })).pose, query.answer);
  const { position } = query.answer.geopose;
  const { pose } = await tiles.localize(own, { fix: [position.lat, position.lon], within: 2 });
  assert.equal(pose.status, "localized", pose.reason);
  assert.ok(Math.hypot(...pose.cameraCenter.map((value, axis) => value - [4.6, 0, 0][axis])) < 0.02, "the planted place");
  await assert.rejects(tiles.localize(own, { fix: [91, 0] }), { name: "InputError" });
});

test("what was fetched serves without a network, and what is not kept is said", async () => {
  const cache = new MemoryTileCache(), { sent, fetch } = servers(), { photograph: own, query } = photograph("as taken");
  await assert.rejects(MapTiles.open(URLS, { cache, offline: true }), { name: "InputError" });
  const online = await open({ fetch, cache });
  samePose((await online.localize(own)).pose, query.answer);
  sent.length = 0;
  const offline = await open({ fetch: () => assert.fail("something was sent"), cache, offline: true });
  const answer = await offline.localize(own);
  samePose(answer.pose, query.answer);
  assert.equal(answer.asked, 0);
  const away = await offline.localize(photograph("near a place").photograph, { near: [4, 0, 0] });
  assert.ok(away.refused.size > 0 && [...away.refused.values()].every((why) => why.includes("not kept")));
  assert.equal(sent.length, 0);
});

test("a kept tile stands in for one that a server changed, and the user is told", async () => {
  let isChanging = false;
  const change = (body, origin) => {
    if (isChanging && origin.includes("//b.")) for (let at = 100; at < body.length; at += facts.record_bytes) body[at] ^= 1;
    return body;
  };
  const { sent, fetch } = servers(change), tiles = await open({ fetch }), { photograph: own, query } = photograph("as taken");
  await tiles.localize(own);
  const before = sent.splice(0).filter((request) => request.includes("POST")).sort();
  isChanging = true;
  const answer = await tiles.localize(own);
  samePose(answer.pose, query.answer);
  assert.deepEqual([...answer.refused.keys()].sort(), [...query.wanted].sort());
  assert.deepEqual([...sent].sort(), before, "nothing is asked for again");
  const unkept = await open({ fetch });
  const none = await unkept.localize(own);
  assert.equal(none.pose.status, "no pose");
  assert.match(none.pose.reason, /no tile could be used/);
});

test("what cannot be used is refused before anything is sent", async () => {
  const { sent, fetch } = servers(), tiles = await open({ fetch }), { photograph: own } = photograph("as taken");
  sent.length = 0;
  for (const wrong of [
    { camera: own.camera },
    { ...own, camera: { ...own.camera, widthPx: 100 } },
    { ...own, camera: { ...own.camera, params: [1, 1, 320, 240] } },
    { ...own, features: { ...own.features, normalization: "L1_ROOT" } },
    { camera: own.camera, image: { width: 640, height: 480, pixels: new Uint8Array(640 * 480) } },
  ]) {
    await assert.rejects(tiles.localize(wrong), { name: "InputError" });
  }
  await assert.rejects(tiles.localize(own, { options: { minInliers: 3 } }), { name: "InputError" });
  assert.equal(sent.length, 0);
  assert.equal((await tiles.localize(own)).pose.status, "localized", "the worker goes on");
});

test("a search that takes too long ends without a pose, after the same requests", async () => {
  const { sent, fetch } = servers(), tiles = await open({ fetch }), { photograph: own } = photograph("as taken");
  sent.length = 0;
  const { pose } = await tiles.localize(own, { options: { maxSeconds: 1e-6 } });
  assert.equal(pose.status, "no pose");
  assert.match(pose.reason, /time/);
  assert.equal(sent.length, 2);
});

test("a client localizes in tiles without a token in any request", async () => {
  const { sent, fetch } = servers(), token = "veil_token_of_a_user_0123456789abcdef";
  const client = new VeilClient({ url: "https://a.example.org", token, fetch });
  const { photograph: own, query } = photograph("as taken");
  for (let turn = 0; turn < 2; turn++) {
    const answer = await client.localize({ tiles: "street", also: [URLS[1]], photograph: own, fetch, exit: "two-servers" });
    samePose(answer.pose, query.answer);
  }
  assert.equal(sent.filter((request) => request.includes("manifest")).length, 2, "tiles are opened once");
  assert.ok(sent.every((request) => !request.includes(token)));
});
