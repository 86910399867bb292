/** Evidence for and against a pose: chance, and what a camera could have seen (veil.places.poses.evidence, localization.md). */

import { type FreeCamera, type Sights, declaredCamera } from "../geometry/free_calibration.js";
import { median, percentile } from "../geometry/linear.js";
import { seenFrom, times } from "../geometry/pose.js";
import { imgFromCam } from "../geometry/projection.js";
import { coin, poseLog10Nfa } from "../geometry/significance.js";
import { type MapViews, magnification, possible } from "../geometry/views.js";
import { type Estimate, type MatchedPoints, deviationOf } from "./matches.js";
import type { Limits } from "./options.js";

const THRESHOLDS = [1, 0.5, 0.25];
/** The evidence is counted among these shares of the pairs, the most trusted ones. */
export const NESTED = [0.25, 0.5, 1];
/** Orders of magnitude of the evidence that right matches and accidents can give a wrong pose near the right one. */
export const PLACE_MARGIN = 6;
const LEAST_SIZE = 0.5, SMALLER = 0.8, ROOM = 1.1;
const TRUSTED = 0.1, LEAST_TRUSTED = 20, MAJORITY = 0.5;
const FOCAL_RANGE = 1.2, FOCAL_SIGMAS = 4;
const TOLERANCE = [Math.log(FOCAL_RANGE), 0.05, 0.05, 0.025, 0.02];
const UNKNOWN_REACH = Math.log(20);
const ANY_REACH = Float64Array.of(Math.log(20), 3, 3, 0.7, 1), ANY_LEAST = ANY_REACH.map((value) => -value);
const CALIBRATION_DOUBT = 20.5, LEAST_FOR_CALIBRATION = 12;
const PRINT_LEAST = Float64Array.of(-Math.log(5), -3, -3, -0.1, -0.1);
const PRINT_MOST = Float64Array.of(-Math.log(FOCAL_RANGE), 3, 3, 0.1, 0.1);
const PRINTS = [0.5, 0.75], CLEARLY = 10.8;
const GOES_ON = 0.2, BORDER = 0.05, FRAMED = 0.75;
const MOST_FITTED = 256, ROUNDS = 8, WIDE = 2, SETTLED = 0.01;
/** Of two poses or cameras the better one is taken if a fair coin would favor it so clearly less often than this. */
export const COIN = 1e-3;
const NARROWING = [16, 8, 4], HIDDEN = 1e-2;

/** Inliers of a pose, rows of the pairs, and log10 of the number of poses with as good inliers that chance gives. */
export interface PoseEvidence {
  rows: Int32Array;
  log10Nfa: number;
}

/** Points of the map that a camera shows: their rows, ascending, and their places in the picture (x, y pairs). */
export interface ShownPoints {
  pointRows: Int32Array;
  xy: Float64Array;
}

/** Points that the camera of an estimated pose could see. */
export function shownBy(matched: MatchedPoints, { pose, camera }: Estimate, views: MapViews): ShownPoints {
  const { points } = matched, seen = new Float64Array(points.length), ahead: number[] = [];
  for (let row = 0; 3 * row < points.length; row++) {
    seen.set(seenFrom(pose, points.subarray(3 * row, 3 * row + 3)), 3 * row);
    if (seen[3 * row + 2]! > 1e-9) ahead.push(row);
  }
  const mask = possible(views, camera, pose, points, ahead), xy = imgFromCam(camera, seen);
  const kept: number[] = [], places: number[] = [];
  ahead.forEach((row, i) => {
    const x = xy[2 * row]!, y = xy[2 * row + 1]!;
    if (!mask[i] || !(x >= 0 && x <= camera.widthPx && y >= 0 && y <= camera.heightPx)) return;
    kept.push(row);
    places.push(x, y);
  });
  return { pointRows: Int32Array.from(kept), xy: Float64Array.from(places) };
}

/** Whether a pose has enough inliers, and chance gives few enough poses as good. */
export function beyondChance(evidence: PoseEvidence, limits: Limits): boolean {
  return evidence.rows.length >= limits.minInliers && evidence.log10Nfa <= limits.maxLog10Nfa;
}

/**
 * Evidence for a pose: the pairs that agree with it and that its camera could have seen, weighed against chance.
 *
 * The number of chance poses is the least one over nested thresholds and nested sets of pairs, times their number
 * (docs/theory/localization.md, Eq. 4). Without `views` every pair counts as one that the camera could have seen.
 */
export function weigh(matched: MatchedPoints, estimate: Estimate, views: MapViews | null): PoseEvidence {
  const projected = matched.projected(estimate), { count } = matched;
  if (views !== null) {
    const ahead = Array.from({ length: count }, (_, pair) => pair).filter((pair) => Number.isFinite(projected[2 * pair]!));
    const pointRows = ahead.map((pair) => matched.pointRows[pair]!);
    const mask = possible(views, estimate.camera, estimate.pose, matched.points, pointRows);
    ahead.forEach((pair, i) => {
      if (!mask[i]) projected[2 * pair] = projected[2 * pair + 1] = NaN;
    });
  }
  const rows = matched.oneToOne(matched.agreeing(projected, 1)), sets = nested(count);
  const tried: number[] = [], agreeing = THRESHOLDS.map((part) => matched.agreeing(projected, part, rows));
  THRESHOLDS.forEach((part, at) => {
    const shares = matched.background.shares(projected, matched.featureOf, part);
    for (const first of sets) {
      const inliers = agreeing[at]!.reduce((sum, row) => sum + Number(row < first), 0);
      tried.push(chance(matched, shares.subarray(0, first), matched.placesOfFirst(first), inliers, matched.floor(part)));
    }
  });
  return { rows, log10Nfa: Math.min(...tried) + Math.log10(tried.length) };
}

/** Sizes of the sets of most trusted pairs that evidence is counted among, of `count` pairs. */
function nested(count: number): number[] {
  const sizes = NESTED.map((share) => Math.max(1, roundedToEven(share * count)));
  return count > 0 ? [...new Set(sizes)].sort((a, b) => a - b) : [];
}

/** The nearest integer, of two the even one, as Python rounds. */
function roundedToEven(value: number): number {
  const floor = Math.floor(value);
  return value - floor === 0.5 ? floor + (floor % 2) : Math.round(value);
}

/** log10 of the number of false alarms (localization.md, Eq. 3) among the first pairs, whose chances to agree are `shares`. */
function chance(matched: MatchedPoints, shares: Float64Array, places: number, inliers: number, floor: number): number {
  const { size } = matched.sampling, count = Math.max(places, inliers);
  if (count <= size) return Infinity;
  const summed = shares.reduce((sum, share) => sum + Math.min(share, 1), 0);
  // The sample's own keypoints are left out of the mean, at worst those that agree least.
  const agreement = Math.min(Math.max(floor, summed / (count - size)), 1);
  return poseLog10Nfa(inliers, count, agreement, matched.sampling) + size * Math.log10(Math.max(shares.length / count, 1));
}

/**
 * Whether the camera more likely saw a photograph of the place, on a wall or a screen, than the place itself
 * (docs/theory/localization.md#what-a-camera-could-have-seen).
 */
export function pictured(matched: MatchedPoints, estimate: Estimate, evidence: PoseEvidence, views: MapViews): boolean {
  const pointRows = evidence.rows.map((row) => matched.pointRows[row]!);
  const size = magnification(views, estimate.camera, estimate.pose, matched.points, pointRows);
  if (size < LEAST_SIZE || (size < SMALLER && (matched.fitsIn(ROOM * size) || contradicted(matched, estimate)))) return true;
  return contradictsCalibration(matched, estimate, evidence.rows) || mayBeFramed(matched, estimate, evidence, views);
}

/** Whether the place extends beyond what the query shows of it, and a print in that window fits as well. */
function mayBeFramed(matched: MatchedPoints, estimate: Estimate, evidence: PoseEvidence, views: MapViews): boolean {
  const { rows } = evidence;
  if (matched.isSearched || rows.length < LEAST_FOR_CALIBRATION) return false; // a print of a guessed focal length is any picture
  if (!matched.fitsIn(FRAMED) || !goesOn(matched, evidence, shownBy(matched, estimate, views))) return false;
  const declared = freeCamera(matched, estimate), sights = matched.normalized(matched.camera), reach = tolerance(matched);
  return PRINTS.some((share) => {
    const printed = gathered(matched, sights, shrunk(declared, sights.take(rows), share), rows, PRINT_MOST, PRINT_LEAST);
    return printed !== null && doubt(matched, sights, declared, printed, reach, PRINT_MOST, PRINT_LEAST) > -CLEARLY;
  });
}

/** Whether much of what the map shows lies outside the box around nearly all inliers' points. */
function goesOn(matched: MatchedPoints, evidence: PoseEvidence, shown: ShownPoints): boolean {
  const inliers = new Set(Array.from(evidence.rows, (row) => matched.pointRows[row]!)), count = shown.pointRows.length;
  const seen = Array.from({ length: count }, (_, i) => i).filter((i) => inliers.has(shown.pointRows[i]!));
  if (seen.length === 0) return count > 0;
  const sides = [matched.camera.widthPx, matched.camera.heightPx];
  const bounds = sides.map((side, axis) => {
    const own = seen.map((i) => shown.xy[2 * i + axis]!);
    return [percentile(own, 5) - BORDER * side, percentile(own, 95) + BORDER * side] as const;
  });
  let outside = 0;
  for (let i = 0; i < count; i++) {
    outside += Number(bounds.some(([low, high], axis) => shown.xy[2 * i + axis]! < low || shown.xy[2 * i + axis]! > high));
  }
  return outside >= GOES_ON * Math.max(count, 1);
}

/** The camera of an estimate, its focal length as an offset from the declared one. */
function freeCamera(matched: MatchedPoints, estimate: Estimate): FreeCamera {
  const camera = declaredCamera(estimate.pose);
  camera.offsets[0] = matched.logFocal(estimate);
  return camera;
}

/** Camera with `share` of the focal length that shows the middle of the points at the same place and of the same size. */
function shrunk(camera: FreeCamera, observed: Sights, share: number): FreeCamera {
  const { pose, offsets } = camera, { points } = observed;
  const middle = Float64Array.from([0, 1, 2], (axis) => median(points.filter((_, at) => at % 3 === axis)));
  const seen = seenFrom(pose, middle), depth = Math.max(seen[2]!, 1e-9), turned = times(pose.rotation, middle);
  const nearer = { rotation: pose.rotation, translation: seen.map((value, i) => share * value - turned[i]!) };
  const added = [Math.log(share), ((1 - share) * seen[0]!) / depth, ((1 - share) * seen[1]!) / depth, 0, 0];
  return { pose: nearer, offsets: offsets.map((value, i) => value + added[i]!) };
}

/** Whether a majority of the most trusted features disagrees with the pose. */
function contradicted(matched: MatchedPoints, estimate: Estimate): boolean {
  const trusted = Math.min(Math.max(LEAST_TRUSTED, roundedToEven(TRUSTED * matched.count)), matched.count);
  const agreeing = matched.agreeing(matched.projected(estimate), 1).reduce((sum, row) => sum + Number(row < trusted), 0);
  return agreeing / trusted < MAJORITY;
}

/** Largest offsets of a calibration from the declared one. */
function tolerance(matched: MatchedPoints): Float64Array {
  const focal = matched.isSearched ? UNKNOWN_REACH : FOCAL_SIGMAS * deviationOf(matched.camera);
  return Float64Array.of(Math.max(TOLERANCE[0]!, focal), ...TOLERANCE.slice(1));
}

/**
 * Whether the pairs fit far better with another calibration than with the declared one: a photograph of a photograph is seen by
 * its own camera followed by a homography (docs/theory/localization.md, Eq. 5; the likelihood ratio of Wilks 1938).
 */
export function contradictsCalibration(matched: MatchedPoints, estimate: Estimate, rows: Int32Array): boolean {
  if (rows.length < LEAST_FOR_CALIBRATION) return false;
  const observed = matched.normalized(matched.camera), declared = freeCamera(matched, estimate), reach = tolerance(matched);
  const isDoubted = (other: FreeCamera | null): boolean =>
    other !== null &&
    other.offsets.some((value, i) => Math.abs(value) > reach[i]!) &&
    doubt(matched, observed, declared, other, reach, ANY_REACH, ANY_LEAST) > CALIBRATION_DOUBT;
  const starts = [declared, ...PRINTS.map((share) => shrunk(declared, observed.take(rows), share))];
  if (starts.some((start) => isDoubted(gathered(matched, observed, start, rows, ANY_REACH, ANY_LEAST)))) return true;
  const { camera, near } = narrowed(matched, observed, declared);
  const hidden = gathered(matched, observed, camera, near, ANY_REACH, ANY_LEAST);
  return hidden !== null && explainsMore(matched, observed, hidden, declared) && isDoubted(hidden);
}

/** Camera with offsets between `least` and `most`, fitted to the pairs `rows` and then to those that agree with it. */
function gathered(
  matched: MatchedPoints,
  observed: Sights,
  start: FreeCamera,
  rows: Int32Array,
  most: Float64Array,
  least: Float64Array,
): FreeCamera | null {
  let camera = start;
  for (let round = 0; round < ROUNDS; round++) {
    if (rows.length < LEAST_FOR_CALIBRATION) return null;
    const last = camera;
    camera = observed.take(few(rows)).fitted(camera, most, least);
    if (camera.offsets.every((value, i) => Math.abs(value - last.offsets[i]!) <= SETTLED)) break;
    rows = matched.nearest(observed.residuals(camera), WIDE * matched.limit(matched.camera));
  }
  return camera;
}

/** The free camera that all pairs near those of a camera lead to as they are narrowed down, and the rows of these pairs. */
function narrowed(matched: MatchedPoints, observed: Sights, start: FreeCamera): { camera: FreeCamera; near: Int32Array } {
  const limit = matched.limit(matched.camera);
  let camera = start, near = matched.nearest(observed.residuals(camera), NARROWING[0]! * limit);
  for (const window of [...NARROWING.slice(1), WIDE]) {
    if (near.length < LEAST_FOR_CALIBRATION) break;
    camera = observed.take(few(near)).fitted(camera, ANY_REACH, ANY_LEAST);
    near = matched.nearest(observed.residuals(camera), window * limit);
  }
  return { camera, near };
}

/** Whether more pairs agree with a camera than with another one, of those that agree with one of both. */
function explainsMore(matched: MatchedPoints, observed: Sights, camera: FreeCamera, other: FreeCamera): boolean {
  const limit = matched.limit(matched.camera);
  const rowsOf = (one: FreeCamera): Set<number> => new Set(matched.nearest(observed.residuals(one), limit));
  const own = rowsOf(camera), others = rowsOf(other);
  const without = (a: Set<number>, b: Set<number>): number => [...a].filter((row) => !b.has(row)).length;
  return coin(without(own, others), without(others, own)) <= HIDDEN;
}

/** Twice the log likelihood ratio of the camera fitted from `other` to the best one within `reach` of the declared one. */
function doubt(
  matched: MatchedPoints,
  observed: Sights,
  start: FreeCamera,
  other: FreeCamera,
  reach: Float64Array,
  most: Float64Array,
  least: Float64Array,
): number {
  const limit = matched.limit(matched.camera), others = observed.residuals(other);
  const gaps = observed.residuals(start).map((gap, i) => Math.min(gap, others[i]!));
  const part = observed.take(few(matched.nearest(gaps, limit)));
  const misfit = (camera: FreeCamera): number =>
    Math.max(part.residuals(camera).reduce((sum, gap) => sum + Math.min(gap, limit), 0) / part.count, 1e-12);
  const declared = Math.min(...[start, other].map((camera) => misfit(part.fitted(camera, reach))));
  return 2 * part.count * Math.log(declared / misfit(part.fitted(other, most, least)));
}

/** At most `MOST_FITTED` of the rows, taken at even steps. */
function few(rows: Int32Array): Int32Array {
  const step = Math.ceil(rows.length / MOST_FITTED) || 1;
  return rows.filter((_, i) => i % step === 0);
}
