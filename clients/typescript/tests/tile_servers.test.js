/**
 * Tiles from two real servers, which `tests/client/test_typescript_tiles.py` starts: VEIL_TILES names their addresses, and what
 * Python has to compare is written to VEIL_FOUND.
 */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { hex } from "../dist/bytes.js";
import { sha256 } from "../dist/digests.js";
import { TileServers } from "../dist/tiles.js";

const { urls, version, place } = JSON.parse(readFileSync(process.env.VEIL_TILES, "utf8"));

/** What is sent, with answers of the second server changed where `changes` says so. */
function watched(changes) {
  const seen = [];
  const send = async (target, init) => {
    const response = await fetch(target, init);
    if (init.method !== "POST") return response;
    seen.push([new URL(target).origin, init.body.length, JSON.stringify(init.headers)]);
    const body = new Uint8Array(await response.arrayBuffer());
    if (changes && target.startsWith(urls[1])) body[5] ^= 1;
    return new Response(body);
  };
  return { seen, send };
}

test("every tile arrives, and Python compares it", async () => {
  const servers = await TileServers.open(urls, { version });
  const { tiles: count, asked } = servers.facts, found = {};
  for (let start = 0; start < count; start += asked) {
    const wanted = Array.from({ length: Math.min(asked, count - start) }, (_, at) => start + at);
    const { tiles, refused } = await servers.fetch(wanted);
    assert.equal(refused.size, 0);
    for (const [index, bytes] of tiles) found[index] = hex(sha256(bytes));
  }
  writeFileSync(process.env.VEIL_FOUND, JSON.stringify({ tiles: found, near: servers.near(...place) }));
});

test("what is sent is the same whatever is wanted, and a changed tile is told to the user alone", async () => {
  const views = [];
  for (const [wanted, changes] of [[[0], false], [[3, 1], false], [[], false], [[2, 4, 5], true]]) {
    const { seen, send } = watched(changes);
    const servers = await TileServers.open(urls, { fetch: send });
    for (let n = 0; n < 2; n++) {
      const { tiles, refused } = await servers.fetch(wanted);
      assert.equal(tiles.size + refused.size, wanted.length);
      // The change hits the first of the tiles that were asked for, in random order: one that was wanted, or a dummy.
      assert.ok(refused.size <= (changes ? 1 : 0));
    }
    views.push(seen.sort());
  }
  for (const view of views) assert.deepEqual(view, views[0]);
});

test("other tiles are refused", async () => {
  await assert.rejects(TileServers.open(urls, { version: "0".repeat(64) }), { name: "WireError" });
  const servers = await TileServers.open(urls);
  for (const wanted of [[0, 0], [-1], [1e9], [0.5], [0, 1, 2, 3, 4, 5, 6, 7]]) {
    await assert.rejects(servers.fetch(wanted), { name: "InputError" });
  }
  assert.match(servers.guarantee, /at least 1 of 2 servers/);
});
