/** Private tiles: the law of queries, proofs, and what a server can learn from what is sent. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fromHex, hex } from "../dist/bytes.js";
import { sha256 } from "../dist/digests.js";
import { TileServers } from "../dist/tiles.js";
import { provesRoot } from "../dist/tiles/manifest.js";
import { queriesFor } from "../dist/tiles/two_servers.js";

const bits = (bytes, count) => Array.from({ length: count }, (_, i) => (bytes[i >> 3] >> (i & 7)) & 1);
const joined = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));

test("queries of all servers add up to the wanted record alone, and padding is 0", () => {
  for (const [records, servers] of [[1, 2], [8, 2], [13, 3], [100, 5]]) {
    for (let index = 0; index < records; index += 7) {
      const queries = queriesFor(index, records, servers);
      assert.equal(queries.length, servers);
      const sum = new Uint8Array(Math.ceil(records / 8));
      for (const query of queries) {
        assert.equal(query.length, sum.length);
        assert.ok(bits(query, 8 * query.length).slice(records).every((bit) => bit === 0));
        query.forEach((byte, at) => (sum[at] ^= byte));
      }
      assert.deepEqual(bits(sum, records), Array.from({ length: records }, (_, i) => Number(i === index)));
    }
  }
});

test("queries with known random bytes are those of the known answers", (context) => {
  const url = new URL("retrieval/two_servers.json", import.meta.url);
  const vectors = JSON.parse(readFileSync(url, "utf8"));
  assert.ok(vectors.length >= 2);
  for (const { records, index, random, queries, answers } of vectors) {
    const drawn = random.map(fromHex);
    const planted = context.mock.method(globalThis.crypto, "getRandomValues", (out) => (out.set(drawn.shift()), out));
    assert.deepEqual(queriesFor(index, records.length, queries.length).map(hex), queries);
    assert.equal(planted.mock.callCount(), queries.length - 1);
    planted.mock.restore();
    const sum = fromHex(answers[0]);
    for (const answer of answers.slice(1)) fromHex(answer).forEach((byte, at) => (sum[at] ^= byte));
    assert.equal(hex(sum), records[index]);
  }
});

/** Chi-square of how often each subset of four records was sent to a server: 15 degrees of freedom. */
function unevenness(server, index, draw) {
  const counts = new Array(16).fill(0), draws = 4000;
  for (let n = 0; n < draws; n++) counts[draw(index)[server][0]]++;
  return counts.reduce((sum, count) => sum + (count - draws / 16) ** 2 / (draws / 16), 0);
}

test("each server's view is uniform for every index; a biased subset is caught", () => {
  // 15 degrees of freedom: below 2.1 and above 50 have probabilities of some 1e-5 each.
  for (let index = 0; index < 4; index++) {
    for (const server of [0, 1]) {
      const found = unevenness(server, index, (i) => queriesFor(i, 4, 2));
      assert.ok(found > 2.1 && found < 50, `${found}`);
    }
  }
  const biased = (index) => queriesFor(index, 4, 2).map((query) => Uint8Array.of(query[0] | (Math.random() < 0.2 ? 1 : 0)));
  assert.ok(unevenness(0, 0, biased) > 50);
});

test("a proof stands for its tile at its place", () => {
  const tiles = [Uint8Array.of(1, 2), Uint8Array.of(3), Uint8Array.of(4)];
  const leaves = [...tiles.map((tile) => sha256(joined([0], tile))), sha256(Uint8Array.of(2))];
  const node = (left, right) => sha256(joined([1], left, right));
  const [left, right] = [node(leaves[0], leaves[1]), node(leaves[2], leaves[3])];
  const root = node(left, right), path = joined(leaves[3], left);
  assert.ok(provesRoot(tiles[2], 2, path, root));
  assert.ok(!provesRoot(tiles[2], 3, path, root));
  assert.ok(!provesRoot(Uint8Array.of(5), 2, path, root));
  assert.ok(!provesRoot(tiles[2], 2, joined(path.subarray(0, 63), [path[63] ^ 1]), root));
});

test("addresses that would tell are refused before anything is sent", async () => {
  const fetch = () => assert.fail("something was sent");
  const safe = "https://a.example.org/v1/tiles/x";
  for (const urls of [[], [safe, safe], ["http://b.example.org/x"], [safe, "ftp://b"], [safe, "b"]]) {
    await assert.rejects(TileServers.open(urls, { fetch }), { name: "InputError" });
  }
  await assert.rejects(TileServers.open([safe], { fetch, exit: "two-servers" }), { message: /two servers or more, .*give them all/ });
  const exits = /region, two-servers, one-server, hintless, got two servers/;
  await assert.rejects(TileServers.open([safe], { fetch, exit: "two servers" }), { message: exits });
});
