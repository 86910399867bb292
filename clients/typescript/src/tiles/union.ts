/** Points of several tiles together, as localization takes them: places, descriptors, and how they were seen (veil.tiles.union). */

import type { MapViews } from "../geometry/views.js";
import { type TileCoding, pixelsAndFrames, unfolded } from "./coding.js";
import type { Tile } from "./tile_format.js";

/** Points of one or more tiles, each once. */
export interface TilePoints {
  /** Number of points, and their places (three numbers each) in units of the map. */
  count: number;
  points: Float64Array;
  /** The point of each aspect, ascending. */
  pointRows: Int32Array;
  /** Levels of each aspect's descriptor along each axis, which the coding's scales give their size. */
  levels: Int8Array;
  /** From where and how large the points were seen. */
  views: MapViews;
}

/**
 * The points of some tiles. Neighbors share points, whose places are the same in both: these are taken from the first.
 *
 * Several points at one place stay several: a keypoint with two orientations gives two points there, with two descriptors.
 */
export function united(tiles: readonly Tile[], coding: TileCoding): TilePoints {
  const first = new Map<string, number>(), points: number[] = [], starts = [0], pointRows: number[] = [];
  const kept: { tile: Tile; aspects: number[] }[] = [];
  tiles.forEach((tile, number) => {
    const aspects: number[] = [];
    for (let row = 0, aspect = 0; row < tile.counts.length; aspect += tile.counts[row]!, row++) {
      const place = [0, 1, 2].map((axis) => tile.places[3 * row + axis]! + tile.origin[axis]!);
      const key = place.join();
      if ((first.get(key) ?? number) !== number) continue;
      first.set(key, number);
      for (const value of place) points.push(value * coding.step);
      for (let own = aspect; own < aspect + tile.counts[row]!; own++) {
        aspects.push(own);
        pointRows.push(starts.length - 1);
      }
      starts.push(pointRows.length);
    }
    kept.push({ tile, aspects });
  });
  const total = pointRows.length, { axes } = coding;
  const levels = new Int8Array(total * axes), places = new Uint8Array(2 * total), sizes = new Uint8Array(2 * total);
  let at = 0;
  for (const { tile, aspects } of kept) {
    for (const aspect of aspects) {
      levels.set(tile.descriptors.subarray(aspect * axes, (aspect + 1) * axes), at * axes);
      places.set(tile.directions.subarray(2 * aspect, 2 * aspect + 2), 2 * at);
      sizes.set(tile.sizes.subarray(2 * aspect, 2 * aspect + 2), 2 * at);
      at++;
    }
  }
  return {
    count: starts.length - 1,
    points: Float64Array.from(points),
    pointRows: Int32Array.from(pointRows),
    levels,
    views: { starts: Int32Array.from(starts), direction: unfolded(places), ...pixelsAndFrames(sizes, coding) },
  };
}
