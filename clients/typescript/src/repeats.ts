/**
 * Near repeats: features that left before leave again with the words that they had (docs/theory/release.md#near-repeats).
 *
 * Words drawn anew for each frame of a video tell more with every frame. The device recognizes a feature by a sketch, and keeps
 * no descriptor. Sketches and pairs are those of Python's `veil.mechanisms.repeats`.
 */

import { utf8 } from "./bytes.js";
import { SKETCH_BYTES, differingBits } from "./differing_bits.js";
import type { Subsets } from "./message.js";
import { rowLengths } from "./nearest.js";
import { type Randomness, gaussian } from "./randomness.js";

/** What a message is for: to localize, features that left before have their earlier words; for a map, new ones. */
export type Purpose = "localize" | "map";

export const SKETCH_BITS = 8 * SKETCH_BYTES;
/** Distance of unit descriptors up to which one feature shows the other again. */
export const SAME = 0.6;
const DIM = 128;
// Earlier features that are compared at once.
const BLOCK = 1024;

/** Features that left before: a sketch of each, and the words that left in its place, `ids.length` / number of features each. */
export interface DrawnFeatures {
  sketches: Uint8Array;
  ids: Uint32Array;
}

/** Words in which features that left before have their earlier ones. */
export interface Answered {
  ids: Uint32Array;
  /** The features of the form that was given that are still there. */
  rows: Uint32Array;
  /** Which of these were drawn anew. */
  isNew: readonly boolean[];
}

/** The secret directions that sketches are made with: 512 rows of 128 standard normal numbers. */
export function sketchDirections(randomness: Randomness): Float64Array {
  const directions = new Float64Array(SKETCH_BITS * DIM);
  for (let bit = 0; bit < SKETCH_BITS; bit++) {
    directions.set(gaussian(randomness.bits64(utf8(`sketch|${bit}`), DIM)), bit * DIM);
  }
  return directions;
}

/**
 * Sketches of descriptors, 64 bytes each: on which side of each of 512 secret hyperplanes they lie.
 *
 * Two descriptors at an angle a lie on different sides of a share a / pi of them (docs/theory/release.md, Eq. 17). Sums may
 * differ from Python's in their last digits, so a bit could where a descriptor lies on a hyperplane to 15 digits.
 */
export function sketched(descriptors: Uint8Array, directions: Float64Array): Uint8Array {
  const count = descriptors.length / DIM, sketches = new Uint8Array(count * SKETCH_BYTES);
  const unit = new Float64Array(DIM), lengths = rowLengths(descriptors, DIM);
  for (let row = 0; row < count; row++) {
    for (let i = 0; i < DIM; i++) unit[i] = Math.fround(descriptors[row * DIM + i]! / lengths[row]!);
    for (let bit = 0, at = 0; bit < SKETCH_BITS; bit++) {
      let side = 0;
      for (let i = 0; i < DIM; i++, at++) side += unit[i]! * directions[at]!;
      if (side > 0) sketches[row * SKETCH_BYTES + (bit >> 3)]! |= 0x80 >> (bit & 7);
    }
  }
  return sketches;
}

/** Number of bits in which sketches of two unit descriptors at this distance differ, in the mean. */
export function mostBits(distance: number): number {
  return Math.round((SKETCH_BITS * 2 * Math.asin(Math.min(1, distance / 2))) / Math.PI);
}

/**
 * Words of a release with the earlier ones of those of its features that left before; `sketches` are those of its features.
 *
 * Pairs of a feature and an earlier one within `SAME` are formed one to one, the nearest first. A feature that may show an
 * earlier one again, but got none, does not leave: drawn anew it would tell more of both. Words of epsilon 0 are drawn anew, as
 * equal ones would say what nothing is to say.
 */
export function withEarlierWords({ ids, mechanism }: Subsets, sketches: Uint8Array, earlier: DrawnFeatures): Answered {
  const { m, epsilon } = mechanism, count = ids.length / m;
  const near = epsilon === 0 ? [] : nearPairs(sketches, earlier.sketches);
  const partner = new Int32Array(count).fill(-1), taken = new Set<number>();
  for (const [feature, other] of near) {
    if (partner[feature]! >= 0 || taken.has(other)) continue;
    partner[feature] = other;
    taken.add(other);
  }
  const isNear = new Set(near.map(([feature]) => feature));
  const rows = Uint32Array.from(partner.keys()).filter((row) => partner[row]! >= 0 || !isNear.has(row));
  const answered = new Uint32Array(rows.length * m);
  rows.forEach((row, i) => {
    const [source, from] = partner[row]! >= 0 ? [earlier.ids, partner[row]!] : [ids, row];
    answered.set(source.subarray(from * m, from * m + m), i * m);
  });
  return { ids: answered, rows, isNew: Array.from(rows, (row) => partner[row]! < 0) };
}

/** Pairs of rows whose sketches may be of one feature: those that differ least first, then by their rows. */
function nearPairs(left: Uint8Array, right: Uint8Array): [number, number][] {
  const features = left.length / SKETCH_BYTES, others = right.length / SKETCH_BYTES, limit = mostBits(SAME);
  const differing = differingBits(left, right, BLOCK);
  const keys: number[] = []; // bits, row and other row in one number
  for (let first = 0; first < others; first += BLOCK) {
    const count = Math.min(BLOCK, others - first);
    for (let feature = 0; feature < features; feature++) {
      const bits = differing(feature, first, count);
      for (let i = 0; i < count; i++) {
        if (bits[i]! <= limit) keys.push((bits[i]! * features + feature) * others + first + i);
      }
    }
  }
  return Array.from(Float64Array.from(keys).sort(), (key) => [Math.floor(key / others) % features, key % others]);
}
