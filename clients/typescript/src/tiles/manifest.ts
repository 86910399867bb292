/** What is public of a map's tiles, and the proofs that tiles are what it names (docs/reference/tiles.md). */

import { areEqual, concatenated, fromHex, hex, utf8, viewOf } from "../bytes.js";
import { sha256 } from "../digests.js";
import { WireError } from "../errors.js";
import { canonicalJson } from "../json.js";

const MOST_TILES = 1 << 20, MOST_TILE = 1 << 28, HASH = 32;

/** What is public of a map's tiles. */
export interface TileFacts {
  /** SHA-256 (hex) that stands for all bytes of the tiles. */
  readonly version: string;
  readonly tiles: number;
  /** Bytes of a tile, and with its proof. */
  readonly tileBytes: number;
  readonly recordBytes: number;
  /** Tiles that every fetch asks for. */
  readonly asked: number;
  readonly root: Uint8Array;
}

/** The facts of a manifest's text, whose version is computed and not believed. Raises WireError for anything else. */
export function factsOf(text: string, version: string): { facts: TileFacts; binaryDigest: string } {
  const canonical = canonicalJson(text);
  const value = JSON.parse(canonical) as Record<string, unknown>;
  const without = canonical.replace(`,"version":"${version}"`, "");
  const digest = hex(sha256(concatenated(utf8("veil tiles\0"), utf8(without))));
  const number = (name: string, most: number): number => {
    const found = value[name];
    if (typeof found !== "number" || !Number.isInteger(found) || found < 1 || found > most) {
      throw new WireError(`the manifest's ${name} is no number from 1 to ${most}`);
    }
    return found;
  };
  if (value.veil_tiles !== 1 || value.version !== version || digest !== version) {
    throw new WireError("this is no manifest of these tiles; get it again");
  }
  const tiles = number("tiles", MOST_TILES), tileBytes = number("tile_bytes", MOST_TILE);
  const root = fromHex(String(value.merkle_root)), recordBytes = tileBytes + HASH * Math.ceil(Math.log2(tiles));
  if (root.length !== HASH || number("record_bytes", 2 * MOST_TILE) !== recordBytes) {
    throw new WireError("the manifest's sizes are wrong; get it again");
  }
  const facts = { version, tiles, tileBytes, recordBytes, asked: number("asked", tiles), root };
  return { facts, binaryDigest: String(value.binary_sha256) };
}

/** The corners at the beginning of a manifest's arrays. Raises WireError for corners that are none. */
export function boxesOf(binary: Uint8Array, tiles: number): Float64Array {
  const view = viewOf(binary), boxes = new Float64Array(6 * tiles);
  for (let at = 0; at < boxes.length; at++) boxes[at] = view.getFloat64(8 * at, true);
  if (!boxes.every(Number.isFinite)) throw new WireError("the manifest's cells are none; get it again");
  return boxes;
}

/** Whether a path of hashes proves that the root stands for a tile (docs/reference/tiles.md#proof). */
export function provesRoot(tile: Uint8Array, index: number, path: Uint8Array, root: Uint8Array): boolean {
  let current = sha256(concatenated(Uint8Array.of(0), tile));
  for (let height = 0; HASH * height < path.length; height++) {
    const sibling = path.subarray(HASH * height, HASH * (height + 1));
    const isRight = Math.floor(index / 2 ** height) % 2 === 1;
    const [left, right] = isRight ? [sibling, current] : [current, sibling];
    current = sha256(concatenated(Uint8Array.of(1), left, right));
  }
  return areEqual(current, root);
}
