/**
 * Localization on the device: raw features against the points of fetched tiles (veil.tiles.device). Nothing of it leaves:
 * neither features, nor the tiles that they look like, nor the pose.
 */

import type { Camera } from "../camera.js";
import { InputError } from "../errors.js";
import type { Features } from "../features.js";
import { claimOf, judgePairs, type Posed, type Refused, refusal } from "../poses/judge.js";
import { MatchedPoints } from "../poses/matches.js";
import { isDoubtful, mirroredKeypoints, unlessMirrored } from "../poses/mirror.js";
import { type LocalizeOptions, limitsOf } from "../poses/options.js";
import { SIFT_MIRRORED, compressedFeatures, requireSameSpace } from "./coding.js";
import type { Manifest } from "./tile_manifest.js";
import { matched } from "./matching.js";
import { ranked } from "./sketches.js";
import type { Tile } from "./tile_format.js";
import { united } from "./union.js";

/** Where the device is about, in units of the map, and how far it may be from there. */
export interface Near {
  place: ArrayLike<number>;
  within?: number;
}

/**
 * The tiles to localize in, the most promising first, as many as are asked for: most like the features, or nearest to a place.
 *
 * With `near`, tiles whose cameras may be so near come first, those most like the features among them; then the nearest of the
 * others. `query` are the features as `queryOf` gives them. Raises InputError for a place that is none and for features of another
 * kind than the map's.
 */
export function wantedTiles(manifest: Manifest, features: Features, near?: Near, query = queryOf(manifest, features)): number[] {
  const { coding, boxes, tiles, asked } = manifest, order = ranked(manifest.sketches, query, coding.axes);
  if (near === undefined) return order.slice(0, asked);
  const { place, within = 0 } = near;
  if (!(within >= 0)) throw new InputError(`within must not be negative, got ${within}`);
  if (place.length !== 3 || !Array.from(place).every(Number.isFinite)) {
    throw new InputError("the place near which to look must be three finite numbers");
  }
  const away = Float64Array.from({ length: tiles }, (_, tile) => {
    const outside = [0, 1, 2].map((axis) => {
      const low = boxes[3 * tile + axis]!, high = boxes[3 * (tiles + tile) + axis]!;
      return Math.max(low - place[axis]!, 0, place[axis]! - high);
    });
    return Math.max(Math.hypot(...outside) - within, 0);
  });
  const rank = new Int32Array(tiles);
  order.forEach((tile, at) => (rank[tile] = at));
  return order.sort((a, b) => away[a]! - away[b]! || rank[a]! - rank[b]!).slice(0, asked);
}

/** Features as tiles are compared with. Raises InputError for features of another kind than the map's. */
export function queryOf({ coding }: Manifest, features: Features): Float32Array {
  requireSameSpace(features, coding);
  return compressedFeatures(features, coding);
}

/** Thrown where the time budget is over. */
class OutOfTime extends Error {}

/**
 * The pose of a photograph in the points of fetched tiles, or why there is none.
 *
 * The pose is estimated, weighed against chance and refused as on a public map. `pointRows` of the answer are rows of `united`
 * of the same tiles, and `query` are the features as `queryOf` gives them. Raises InputError for features of another kind than the
 * map's.
 */
export function localizeInTiles(
  features: Features,
  camera: Camera,
  manifest: Manifest,
  tiles: readonly Tile[],
  options: LocalizeOptions = {},
  query = queryOf(manifest, features),
): Posed | Refused {
  const limits = limitsOf(options), { coding } = manifest, deadline = performance.now() + 1000 * limits.maxSeconds;
  if (tiles.length === 0) return refusal("no tile could be used; see why, and fetch again", 0);
  const points = united(tiles, coding), check = (): void => {
    if (performance.now() > deadline) throw new OutOfTime();
  };
  const pairsOf = (keypoints: Float32Array, vectors: Float32Array): MatchedPoints => {
    const { keypointRows, pointRows } = matched(vectors, points, coding, limits.maxRatio);
    const { maxErrorPx, seed } = limits;
    check();
    return new MatchedPoints({ camera, keypoints, keypointRows, pointRows, points: points.points, maxErrorPx, seed, check });
  };
  try {
    const answer = judgePairs(pairsOf(features.keypoints, query), points.views, limits);
    if (!isDoubtful(answer)) return answer;
    return unlessMirrored(answer, () => {
      const turned = compressedFeatures(features, coding, SIFT_MIRRORED);
      const claim = claimOf(pairsOf(mirroredKeypoints(camera, features.keypoints), turned), points.views, limits);
      return "status" in claim ? claim.log10Nfa : claim.evidence.log10Nfa;
    });
  } catch (error) {
    if (!(error instanceof OutOfTime)) throw error;
    return refusal(`the time of ${limits.maxSeconds} s was over before a pose was found and judged; allow more, or ask again`, 0);
  }
}
