/** Requests and errors against servers that are made up here: what is sent where, what is told, and that no token is in it. */

import assert from "node:assert/strict";
import { inspect } from "node:util";
import { test } from "node:test";
import { VeilClient } from "../dist/client.js";
import { Connection, Unreachable, VeilProblem } from "../dist/connection.js";
import { InputError, VeilError, WireError } from "../dist/errors.js";
import { GeoPoseClient, geoposeRequest } from "../dist/geopose.js";
import { MemoryStore } from "../dist/store.js";
import { fromBase64, thrown, vectors } from "./vectors.js";

const TOKEN = "veil_secret-of-the-token";
const URL_ = "https://maps.example.org";
const MAP = "m0123456789abcdef";
const JOB = { job: "j", state: "done", progress: { step: "", done: 1, total: 1 }, result: {} };
const MESSAGE = fromBase64(vectors.messages[0].bytes);
const json = (value, init = {}) => new Response(JSON.stringify(value), init);
const problem = (status, value, headers = {}) => json(value, { status, headers });

/** A client of a server that answers by a function; `asked` are the requests. */
function served(answer, options = {}) {
  const asked = [];
  const send = async (url, init) => {
    asked.push({ url, ...init });
    return answer(url, init, asked.length);
  };
  return { asked, client: new VeilClient({ url: URL_, token: TOKEN, fetch: send, ...options }) };
}

test("a token goes to one address alone, over TLS or within this machine", async () => {
  const far = ["maps.example.org", "10.0.0.1:8700", "127.0.0.1.example.org", "localhost.example.org"];
  for (const url of far.map((host) => `http://${host}`)) {
    assert.throws(() => new Connection({ url, token: TOKEN }), /without encryption/);
    new Connection({ url, token: TOKEN, allowPlain: true });
  }
  for (const url of ["http://127.0.0.1:8700", "http://localhost/", "http://[::1]:1", URL_, `${URL_}/veil/`]) {
    new Connection({ url, token: TOKEN });
  }
  for (const url of ["", "maps", "ftp://x", "https://a:b@x", "https://x/?q", "https://x/#f", "file:///x", "javascript:1"]) {
    assert.throws(() => new Connection({ url, token: TOKEN }), InputError);
  }
  for (const token of ["", "a b", "a\nb", "ä"]) assert.throws(() => new Connection({ url: URL_, token }), InputError);
  const { asked, client } = served(() => json({ maps: [] }), { url: `${URL_}/veil/` });
  await client.maps();
  const [{ url, headers, ...init }] = asked;
  assert.equal(url, `${URL_}/veil/v1/maps`);
  assert.equal(headers.Authorization, `Bearer ${TOKEN}`);
  assert.deepEqual([init.redirect, init.credentials, init.referrerPolicy], ["error", "omit", "no-referrer"]);
  await served(() => json(JOB)).client.job("../x?y");
});

test("parts of a path are quoted", async () => {
  const { asked, client } = served(() => json(JOB));
  await client.job("../x?y#z");
  assert.equal(asked[0].url, `${URL_}/v1/jobs/..%2Fx%3Fy%23z`);
});

test("a map is chosen by its id or its name", async () => {
  const map = (id, name) => ({ map: id, name, mapped: true, version: 1 });
  const maps = [map(MAP, "door"), map("m0000000000000001", "hall"), map("m0000000000000002", "hall")];
  const pose = { status: "no pose", reason: "chance", map: MAP };
  const { asked, client } = served((url) => json(url.endsWith("/localize") ? pose : { maps }));
  assert.equal((await client.map("door")).id, MAP);
  for (const name of [MAP, "door"]) {
    await client.localize(name, MESSAGE);
    assert.equal(asked.at(-1).url, `${URL_}/v1/maps/${MAP}/localize`);
  }
  assert.equal(asked.length, 4, "an id is not looked up");
  const two = await client.localize("hall", MESSAGE).catch((error) => error);
  assert.match(two.message, /m0000000000000001, m0000000000000002/);
  const none = await client.contribute("porch", MESSAGE).catch((error) => error);
  assert.ok([two, none].every((error) => error instanceof VeilProblem && error.kind === "not-found"));
  assert.ok(!asked.slice(4).some(({ method }) => method === "POST"), "nothing is sent");
});

test("errors say what the server said, and never the token", async () => {
  const told = { type: "urn:veil:refused", title: "no", status: 422, detail: `send fewer, ${TOKEN}` };
  const failures = [
    [() => problem(422, told), VeilProblem],
    [() => problem(500, TOKEN), VeilProblem],
    [() => new Response(`<p>${TOKEN}`, { status: 502 }), VeilProblem],
    [() => new Response(`<p>${TOKEN}`), WireError],
    [() => json({ maps: [{ map: 1, token: TOKEN }] }), WireError],
    [() => { throw new TypeError(`'Bearer ${TOKEN}' failed`); }, Unreachable],
    [() => { throw new DOMException(TOKEN, "TimeoutError"); }, Unreachable],
  ];
  for (const [answer, kind] of failures) {
    const { client } = served(answer);
    const error = await client.maps().then(() => null, (found) => found);
    assert.ok(error instanceof kind && error instanceof VeilError, String(error));
    assert.ok(!inspect(error, { depth: 9, showHidden: true }).includes(TOKEN));
    assert.ok(!inspect(client, { depth: 9, showHidden: true }).includes(TOKEN) && !JSON.stringify(client).includes(TOKEN));
  }
  const error = await served(failures[0][0]).client.maps().catch((found) => found);
  assert.deepEqual([error.status, error.kind, error.title, error.detail], [422, "refused", "no", "send fewer, [token]"]);
  const remedy = [{ action: "give", object: TOKEN, value: "20" }];
  const refusal = await served(() => problem(422, { ...told, cause: "too many", remedy })).client.maps().catch((given) => given);
  assert.deepEqual([refusal.problem, refusal.remedies], ["too many", [{ action: "give", object: "[token]", value: "20" }]]);
  assert.deepEqual([error.problem, error.remedies], [error.detail, []]);
  assert.equal((await served(failures[1][0]).client.maps().catch((found) => found)).kind, "foreign");
});

test("a busy server is asked again, as it says", async () => {
  const busy = { type: "urn:veil:busy", title: "busy", status: 503, detail: "busy" };
  const { asked, client } = served((_, __, count) =>
    count === 1 ? problem(503, busy, { "Retry-After": "0" }) : json({ maps: [] }),
  );
  assert.deepEqual(await client.maps(), []);
  assert.equal(asked.length, 2);
  const late = served(() => problem(429, { ...busy, type: "urn:veil:quota" }, { "Retry-After": "3600" }));
  const error = await late.client.maps().catch((found) => found);
  assert.deepEqual([error.kind, error.retryAfterS, late.asked.length], ["quota", 3600, 1]);
});

test("nothing but a message is sent", async () => {
  const { asked, client } = served(() => json({}));
  const geopose = new GeoPoseClient({ url: URL_, token: TOKEN, fetch: async (url) => (asked.push(url), json({})) });
  const jpeg = Uint8Array.of(0xff, 0xd8, 0xff, ...new Array(500).fill(0));
  for (const raw of [jpeg, new Uint8Array(0), MESSAGE.slice(0, -1), Uint8Array.of(...MESSAGE, 0)]) {
    await assert.rejects(client.localize(MAP, raw), WireError);
    await assert.rejects(client.contribute(MAP, raw), WireError);
    await assert.rejects(geopose.localize(raw), WireError);
  }
  assert.equal(asked.length, 0);
});

test("a contribution waits until it is acknowledged, and a retry sends the same bytes", async () => {
  const store = new MemoryStore(), sent = [];
  const sha = "5f".repeat(32);
  let isAway = true;
  const { client } = served((_, { body }) => {
    sent.push(Buffer.from(body).toString("hex"));
    if (isAway) throw new TypeError("fetch failed");
    const accepted = { contribution: "c1", map: "m", state: "pending", reason: "", job: "j", receipts_head: sha };
    return json({ ...accepted, message_sha256: isAway === null ? sha : digest });
  }, { store });
  const digest = Buffer.from(await crypto.subtle.digest("SHA-256", MESSAGE)).toString("hex");
  await assert.rejects(client.contribute(MAP, MESSAGE), Unreachable);
  isAway = false;
  const [accepted] = await client.send();
  assert.deepEqual([accepted.contribution, accepted.job], ["c1", "j"]);
  assert.equal(sent.length, 2);
  assert.equal(sent[0], sent[1]);
  assert.deepEqual(await client.send(), []);
  const [noted] = await store.transact((held) => ({ result: held.sendings }));
  assert.deepEqual([noted.message, noted.contribution, noted.receiptsHead], [null, "c1", sha]);
  isAway = null;
  await assert.rejects(client.contribute(MAP, MESSAGE), /other bytes/);
});

test("answers that are none of veil's are refused, whatever they are", async () => {
  const asks = ["policy", "maps", "usage", "contributions", "receipts", "isRunning"];
  for (const value of [null, 1, "x", [], {}, { maps: {} }, { links: [1] }, { maps: [null] }, { contributions: [[]] }]) {
    const fetch = async () => json(value), options = { url: URL_, token: TOKEN, fetch };
    const client = new VeilClient(options), geopose = new GeoPoseClient(options);
    for (const name of asks) {
      const ask = name === "isRunning" ? geopose.isRunning() : client[name]();
      await ask.catch((error) => assert.ok(error instanceof WireError, `${name} of ${JSON.stringify(value)}: ${error}`));
    }
    for (const ask of [client.map(MAP), client.job("j"), client.delete("c"), client.localize(MAP, MESSAGE)]) {
      await assert.rejects(ask, WireError);
    }
    await assert.rejects(client.contribute(MAP, MESSAGE), WireError);
    await assert.rejects(geopose.localize(MESSAGE), WireError);
  }
});

test("an answer that is no pose is refused", async () => {
  const pose = { rotation: [[1, 0, 0], [0, 1, 0], [0, 0, 1]], translation: [1, 2, 3] };
  const good = {
    status: "localized", cam_from_world: pose, camera_center: [-1, -2, -3], covariance: null, turn_deviation_deg: null,
    evidence: { inliers: 30, correspondences: 50, log10_nfa: -20 }, map: "m", map_version: 1,
  };
  const localized = (value) => served(() => json(value)).client.localize(MAP, MESSAGE);
  const found = await localized(good);
  assert.deepEqual([found.status, found.camFromWorld, found.evidence.log10Nfa], ["localized", pose, -20]);
  assert.equal((await localized({ ...good, evidence: null })).evidence, null); // a guarded map
  assert.equal(found.camera, null); // an older server
  const camera = { model: "SIMPLE_RADIAL", width_px: 640, height_px: 480, params: [501.5, 320, 240, 0], focal_deviation: 0.004 };
  const params = [501.5, 320, 240, 0];
  assert.deepEqual((await localized({ ...good, camera })).camera, {
    model: "SIMPLE_RADIAL", widthPx: 640, heightPx: 480, params, focalDeviation: 0.004,
  });
  const none = await localized({ status: "no pose", reason: "chance", map: "m" });
  assert.deepEqual(none, { status: "no pose", reason: "chance", remedies: [], map: "m" });
  const remedy = [{ action: "give", object: "gravity" }, { action: 3, object: "x" }, "no remedy"];
  const other = await localized({ status: "no pose", reason: "chance", map: "m", remedy });
  assert.deepEqual(other.remedies, [{ action: "give", object: "gravity", value: "" }]);
  for (const change of [
    { status: "x" },
    { cam_from_world: { ...pose, rotation: [[1, 0, 0], [0, 1, 0], [0, 0, -1]] } },
    { cam_from_world: { ...pose, rotation: [[2, 0, 0], [0, 1, 0], [0, 0, 1]] } },
    { cam_from_world: { ...pose, translation: [1, 2] } },
    { covariance: [[1]] },
    { evidence: {} },
    { camera: 3 },
    { camera: { ...camera, model: "LENS" } },
    { camera: { ...camera, params: [-501.5, 320, 240, 0] } },
    { camera: { ...camera, focal_deviation: 0 } },
    { geopose: { position: { lat: 100, lon: 0, h: 0 }, quaternion: { x: 0, y: 0, z: 0, w: 1 } } },
    { geopose: { position: { lat: 10, lon: 0, h: 0 }, quaternion: { x: 0, y: 0, z: 0, w: 2 } } },
  ]) {
    await assert.rejects(localized({ ...good, ...change }), WireError);
  }
});

test("a dictionary is the one that was asked for, whatever the server sends", async () => {
  const html = served(() => new Response("<html>"));
  await assert.rejects(html.client.dictionary("0f".repeat(32)), InputError);
  assert.equal(html.asked[0].url, `${URL_}/v1/dictionaries/${"0f".repeat(32)}`);
});

test("a GeoPose request says of its message what is true of it", () => {
  const request = geoposeRequest(MESSAGE, { geolocation: { latitude: 1, longitude: 2 } });
  const [reading] = request.sensorReadings.cameraReadings;
  assert.deepEqual(reading.privacy.dataSanitizationApplied, ["veil:words:epsilon=8", "veil:positions"]);
  assert.deepEqual([reading.size, reading.imageFormat], [[641, 479], "application/vnd.veil.message"]);
  assert.equal(Buffer.from(reading.imageBytes, "base64").compare(MESSAGE), 0);
  const lines = geoposeRequest(fromBase64(vectors.messages[3].bytes)).sensorReadings.cameraReadings[0];
  assert.deepEqual(lines.privacy.dataSanitizationApplied, ["veil:words:epsilon=inf", "veil:lines"]);
  assert.ok(thrown(() => geoposeRequest(new Uint8Array(10))) instanceof WireError);
});
