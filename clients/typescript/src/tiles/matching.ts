/** Features and points of tiles that are each other's nearest, as veil.tiles.device matches them. */

import { dotProducts } from "../dot_products.js";
import type { TileCoding } from "./coding.js";
import type { TilePoints } from "./union.js";

/** So many neighbors are looked at for one that is of another point. */
const NEIGHBORS = 5;
/** Candidates of each feature, and of each aspect, whose distances are computed exactly. */
const CANDIDATES = 8, BACK = 4;
const BLOCK = 512;
const MOST_LEVEL = 32767;

/** Matched rows, the most distinctive pairs first. */
export interface TileMatches {
  keypointRows: Int32Array;
  pointRows: Int32Array;
  /** Of each pair: its distance beside that to the nearest descriptor of another point or feature, the larger of both. */
  ratios: Float64Array;
}

/**
 * Rows of features and points that are each other's nearest, the most distinctive pairs first.
 *
 * A pair is as distinctive as its distance is small beside that to the nearest descriptor of another point, or of another
 * feature. `maxRatio` leaves out pairs that are less so; null keeps all. `query` are compressed descriptors of the features.
 */
export function matched(query: Float32Array, points: TilePoints, coding: TileCoding, maxRatio: number | null): TileMatches {
  const near = new Nearest(query, points.levels, coding), pairs: { feature: number; point: number; ratio: number }[] = [];
  for (let feature = 0; feature < near.features; feature++) {
    const there = near.ofFeature(feature), [aspect] = there.rows;
    if (aspect === undefined) break;
    const back = near.ofAspect(aspect);
    if (back.rows[0] !== feature) continue;
    const point = points.pointRows[aspect]!, other = there.rows.findIndex((row) => points.pointRows[row]! !== point);
    const ratio = Math.max(
      ratioOf(there.distances[0]!, other < 0 ? Infinity : there.distances[other]!),
      ratioOf(back.distances[0]!, back.distances[1] ?? Infinity),
    );
    if (maxRatio === null || ratio <= maxRatio) pairs.push({ feature, point, ratio });
  }
  pairs.sort((a, b) => a.ratio - b.ratio);
  return {
    keypointRows: Int32Array.from(pairs, ({ feature }) => feature),
    pointRows: Int32Array.from(pairs, ({ point }) => point),
    ratios: Float64Array.from(pairs, ({ ratio }) => ratio),
  };
}

/** Nearest over second nearest distance; 1 where both are zero, 0 where there is no second. */
function ratioOf(nearest: number, second: number): number {
  return second === 0 ? 1 : nearest / second;
}

/** Rows, the nearest first, and their distances. */
interface Neighbors {
  rows: number[];
  distances: number[];
}

/**
 * Nearest aspects of features and the reverse.
 *
 * Products in whole numbers find a few candidates each; their distances are then computed in double precision.
 */
class Nearest {
  readonly features: number;
  readonly #there: Int32Array;
  readonly #back: Int32Array;

  constructor(readonly query: Float32Array, readonly levels: Int8Array, readonly coding: TileCoding) {
    const { axes, scales } = coding, features = query.length / axes, aspects = levels.length / axes;
    this.features = features;
    this.#there = new Int32Array(features * CANDIDATES).fill(-1);
    this.#back = new Int32Array(aspects * BACK).fill(-1);
    if (features === 0 || aspects === 0) return;
    const halves = halfSquares(levels, scales), own = new Float64Array(features), scaled = new Int16Array(query.length);
    const units = new Float64Array(features);
    for (let row = 0; row < features; row++) {
      let most = 1e-30;
      for (let i = 0; i < axes; i++) {
        own[row]! += query[row * axes + i]! ** 2 / 2;
        most = Math.max(most, Math.abs(query[row * axes + i]! * scales[i]!));
      }
      units[row] = most / MOST_LEVEL;
      for (let i = 0; i < axes; i++) scaled[row * axes + i] = Math.round((query[row * axes + i]! * scales[i]!) / units[row]!);
    }
    const products = dotProducts(scaled, Int16Array.from(levels), axes, BLOCK);
    const there = new Best(features, CANDIDATES, this.#there), back = new Best(aspects, BACK, this.#back);
    for (let first = 0; first < aspects; first += BLOCK) {
      const block = Math.min(BLOCK, aspects - first);
      for (let row = 0; row < features; row++) {
        const found = products(row, first, block), unit = units[row]!, half = own[row]!;
        let limit = there.limits[row]!;
        for (let i = 0; i < block; i++) {
          const aspect = first + i, value = half + halves[aspect]! - unit * found[i]!;
          if (value < limit) limit = there.put(row, aspect, value);
          if (value < back.limits[aspect]!) back.put(aspect, row, value);
        }
      }
    }
  }

  ofFeature(feature: number): Neighbors {
    const rows = this.#there.subarray(feature * CANDIDATES, (feature + 1) * CANDIDATES);
    return this.#exact(rows, (aspect) => [feature, aspect], NEIGHBORS);
  }

  ofAspect(aspect: number): Neighbors {
    return this.#exact(this.#back.subarray(aspect * BACK, (aspect + 1) * BACK), (feature) => [feature, aspect], 2);
  }

  #exact(rows: Int32Array, pairOf: (row: number) => [number, number], count: number): Neighbors {
    const found = Array.from(rows.filter((row) => row >= 0), (row) => ({ row, distance: this.#distance(...pairOf(row)) }));
    found.sort((a, b) => a.distance - b.distance || a.row - b.row);
    const kept = found.slice(0, count);
    return { rows: kept.map(({ row }) => row), distances: kept.map(({ distance }) => distance) };
  }

  #distance(feature: number, aspect: number): number {
    const { axes, scales } = this.coding;
    let sum = 0;
    for (let i = 0; i < axes; i++) {
      sum += (this.query[feature * axes + i]! - Math.fround(this.levels[aspect * axes + i]! * scales[i]!)) ** 2;
    }
    return Math.sqrt(sum);
  }
}

/** Half of the squared length of each descriptor. */
function halfSquares(levels: Int8Array, scales: Float32Array): Float64Array {
  const axes = scales.length, out = new Float64Array(levels.length / axes);
  for (let at = 0; at < levels.length; at++) out[Math.floor(at / axes)]! += (levels[at]! * scales[at % axes]!) ** 2 / 2;
  return out;
}

/** The rows of least values for each of several others, unsorted, at most `size` each, written to `rows`. */
class Best {
  /** Values below these enter. */
  readonly limits: Float64Array;
  readonly #values: Float64Array;

  constructor(count: number, readonly size: number, readonly rows: Int32Array) {
    this.limits = new Float64Array(count).fill(Infinity);
    this.#values = new Float64Array(count * size).fill(Infinity);
  }

  /** Put a row in place of the worst one, and return the value that the next must be below. */
  put(one: number, row: number, value: number): number {
    const start = one * this.size, end = start + this.size;
    let worst = start;
    for (let at = start + 1; at < end; at++) if (this.#values[at]! > this.#values[worst]!) worst = at;
    this.#values[worst] = value;
    this.rows[worst] = row;
    let limit = this.#values[start]!;
    for (let at = start + 1; at < end; at++) limit = Math.max(limit, this.#values[at]!);
    this.limits[one] = limit;
    return limit;
  }
}
