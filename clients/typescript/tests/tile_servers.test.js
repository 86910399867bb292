/**
 * Tiles from two real servers, which `tests/client/test_typescript_tiles.py` starts: VEIL_TILES names their addresses, and what
 * Python has to compare is written to VEIL_FOUND. The first server offers all exits.
 */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { hex } from "../dist/bytes.js";
import { sha256 } from "../dist/digests.js";
import { TileServers } from "../dist/tiles.js";

const { urls, version, place } = JSON.parse(readFileSync(process.env.VEIL_TILES, "utf8"));
/** The addresses that each exit takes. */
const ADDRESSES = { region: urls.slice(0, 1), "two-servers": urls, "one-server": urls.slice(0, 1), hintless: urls.slice(0, 1) };

/** What is sent, with answers of the last server changed where `changes` says so. */
function watched(addresses, changes) {
  const seen = [];
  const send = async (target, init) => {
    const response = await fetch(target, init);
    if (init.method !== "POST") return response;
    seen.push([target, init.body.length, JSON.stringify(init.headers)]);
    const body = new Uint8Array(await response.arrayBuffer());
    if (changes && target.startsWith(addresses.at(-1))) body[7] ^= 0x80;
    return new Response(body);
  };
  return { seen, send };
}

test("every tile arrives by each exit, and Python compares it", async () => {
  const found = {};
  let near = [];
  for (const [exit, addresses] of Object.entries(ADDRESSES)) {
    const servers = await TileServers.open(addresses, { version, exit });
    const { tiles: count, asked } = servers.facts, digests = {};
    assert.equal(servers.exit, exit);
    for (let start = 0; start < count; start += asked) {
      const wanted = Array.from({ length: Math.min(asked, count - start) }, (_, at) => start + at);
      const { tiles, refused } = await servers.fetch(wanted);
      assert.equal(refused.size, 0);
      for (const [index, bytes] of tiles) digests[index] = hex(sha256(bytes));
    }
    found[exit] = { tiles: digests, guarantee: servers.guarantee };
    near = servers.near(...place);
  }
  writeFileSync(process.env.VEIL_FOUND, JSON.stringify({ exits: found, near }));
});

for (const [exit, addresses] of Object.entries(ADDRESSES)) {
  test(`what is sent is the same whatever is wanted, and a changed tile is told to the user alone: ${exit}`, async () => {
    const views = [];
    for (const [wanted, changes] of [[[0], false], [[3, 1], false], [[], false], [[2, 4, 5], true]]) {
      const { seen, send } = watched(addresses, changes);
      const servers = await TileServers.open(addresses, { fetch: send, exit });
      for (let n = 0; n < 2; n++) {
        const { tiles, refused } = await servers.fetch(wanted);
        assert.equal(tiles.size + refused.size, wanted.length);
        // The change hits the first of the tiles that were asked for, in random order: all of them are wanted.
        assert.equal(refused.size, changes && exit !== "region" ? 1 : 0);
      }
      views.push(seen.sort());
    }
    for (const view of views) assert.deepEqual(view, views[0]);
    assert.equal(views[0].length, exit === "region" ? 0 : 2 * addresses.length);
  });
}

test("the exit follows from the map and the addresses; none is offered that is not there", async () => {
  assert.equal((await TileServers.open(urls)).exit, "region");
  for (const exit of ["one-server", "hintless"]) {
    for (const addresses of [urls, urls.slice(1)]) {
      const message = new RegExp(`the exit ${exit} takes one address, of a server that offers it`);
      await assert.rejects(TileServers.open(addresses, { exit }), { name: "InputError", message });
    }
  }
  await assert.rejects(TileServers.open(urls, { exit: "region", mostBytes: 1000 }), { name: "InputError", message: /allow more/ });
});

/** Requests that see the facts of the first server changed. */
const facing = (change) => async (target, init) => {
  const response = await fetch(target, init);
  if (!target.endsWith("exits.json")) return response;
  const said = await response.json();
  change(said);
  return new Response(JSON.stringify(said));
};

test("another version, seed, hint or degree than the server's own is refused", async () => {
  const one = urls.slice(0, 1);
  for (const [exit, change, error] of [
    ["hintless", ({ exits }) => (exits.hintless.degree = 1024), { name: "WireError", message: /its degree is not 2048/ }],
    ["one-server", ({ exits }) => (exits["one-server"].dimension = 1024), { name: "WireError", message: /dimension is not 1408/ }],
    ["one-server", ({ exits }) => (exits["one-server"].hint_sha256 = "0".repeat(64)), { name: "WireError", message: /the hint of/ }],
    ["hintless", (said) => (said.version = "0".repeat(64)), { name: "Unreachable" }],
  ]) {
    await assert.rejects(TileServers.open(one, { exit, fetch: facing(change) }), error);
  }
  // Queries for the polynomials of another seed bring other bytes, which no proof stands for.
  const twisted = facing(({ exits }) => (exits.hintless.seed = "ab".repeat(32)));
  const { tiles, refused } = await (await TileServers.open(one, { exit: "hintless", fetch: twisted })).fetch([0, 1, 2]);
  assert.deepEqual([tiles.size, refused.size], [0, 3]);
});

test("other tiles are refused", async () => {
  await assert.rejects(TileServers.open(urls, { version: "0".repeat(64) }), { name: "WireError" });
  const servers = await TileServers.open(urls, { exit: "two-servers" });
  for (const wanted of [[0, 0], [-1], [1e9], [0.5], [0, 1, 2, 3, 4, 5, 6, 7]]) {
    await assert.rejects(servers.fetch(wanted), { name: "InputError" });
  }
});
