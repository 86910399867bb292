/** The manifest of a map's tiles, what every device has of the map before it asks for a tile (veil.tiles.manifest). */

import { viewOf } from "../bytes.js";
import { WireError } from "../errors.js";
import type { Normalization } from "../features.js";
import { type Georeference, placeOf } from "../geometry/georeference.js";
import { canonicalJson } from "../json.js";
import type { TileCoding } from "./coding.js";

const MOST_WORDS = 1 << 16, MOST_AXES = 4095, MOST_DIM = 4096;
// Squares and products of numbers below this stay finite in single precision.
const MOST = 1e12;

/** Words of a map's descriptors (int8 unit vectors in parts of 127), and how often each occurs in each tile (255: or more). */
export interface Sketches {
  words: Int8Array;
  counts: Uint8Array;
}

/** What is public of a map's tiles beside their number and sizes: what their numbers mean, and what they look like. */
export interface Manifest {
  tiles: number;
  asked: number;
  coding: TileCoding;
  /** Corners of the box around each tile's cameras: x, y, z of all low ones, then of all high ones. */
  boxes: Float64Array;
  sketches: Sketches;
  /** Where on Earth the map is, or null. */
  place: Georeference | null;
}

/**
 * The manifest of its two parts, of which the version and the digest were verified before.
 *
 * Raises WireError for parts that do not mean a map's tiles.
 */
export function decodeManifest(text: string, binary: Uint8Array): Manifest {
  const value = JSON.parse(canonicalJson(text)) as Record<string, unknown>;
  const space = object(value.descriptor);
  const tiles = integer(value.tiles, 1 << 20), axes = integer(value.axes, MOST_AXES), words = integer(value.words, MOST_WORDS);
  const dim = integer(space.dim, MOST_DIM), bits = integer(value.bits, 8), { normalization } = space;
  if ((bits !== 4 && bits !== 8) || axes >= dim || (axes * bits) % 8 !== 0) throw wrong(`${axes} axes of ${bits} bits cannot be`);
  if (normalization !== "L2" && normalization !== "L1_ROOT") throw wrong("its descriptors' normalization is unknown");
  const sizes = [24 * tiles, 24 * tiles, 4 * dim, 4 * dim * axes, 4 * axes, words * axes, tiles * words];
  if (sizes.reduce((sum, size) => sum + size, 0) !== binary.length) throw wrong(`its binary part has ${binary.length} bytes`);
  const starts = sizes.map((_, part) => sizes.slice(0, part).reduce((sum, size) => sum + size, 0));
  const bytes = (part: number): Uint8Array => binary.subarray(starts[part]!, starts[part]! + sizes[part]!);
  const coding: TileCoding = {
    descriptor: String(space.kind),
    normalization: normalization as Normalization,
    dim,
    axes,
    bits,
    mean: singles(bytes(2)),
    principal: singles(bytes(3)),
    scales: singles(bytes(4)),
    step: positive(value.step),
    leastPixels: positive(value.least_pixels),
    leastFrames: positive(value.least_frames),
  };
  if (!coding.scales.every((scale) => scale > 1 / MOST && scale < MOST)) throw wrong("a scale is none");
  if (![coding.mean, coding.principal].every((rows) => rows.every((item) => Math.abs(item) < MOST))) throw wrong("an axis is none");
  const sketches = { words: new Int8Array(bytes(5)), counts: bytes(6) };
  for (let word = 0; word < words; word++) {
    if (!sketches.words.subarray(word * axes, (word + 1) * axes).some((level) => level !== 0)) throw wrong("a word is zero");
  }
  const corners = new Float64Array(6 * tiles), view = viewOf(binary);
  for (let at = 0; at < corners.length; at++) corners[at] = view.getFloat64(8 * at, true);
  for (let at = 0; at < 3 * tiles; at++) {
    if (!(corners[at]! <= corners[3 * tiles + at]! && Math.abs(corners[at]!) < Infinity)) throw wrong("a cell is no box");
  }
  const place = value.place === null ? null : placeOf(value.place);
  return { tiles, asked: integer(value.asked, tiles), coding, boxes: corners, sketches, place };
}

function wrong(reason: string): WireError {
  return new WireError(`this is no manifest of tiles (${reason}); get it again`);
}

function object(value: unknown): Record<string, unknown> {
  if (typeof value !== "object" || value === null) throw wrong("a part is missing");
  return value as Record<string, unknown>;
}

function integer(value: unknown, most: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1 || value > most) throw wrong("a number is out of range");
  return value;
}

function positive(value: unknown): number {
  if (typeof value !== "number" || !(value > 1 / MOST && value < MOST)) throw wrong("a number is out of range");
  return value;
}

function singles(bytes: Uint8Array): Float32Array {
  const view = viewOf(bytes);
  return Float32Array.from({ length: bytes.length / 4 }, (_, at) => view.getFloat32(4 * at, true));
}
