/** A rational distortion that covers all of COLMAP's models, and its inverse by Newton's method (veil.geometry.camera). */

import { type Camera, focalCount } from "./camera.js";

const MAX_OFF_AXIS_RADIANS = (88 * Math.PI) / 180; // the normalized plane ends at 90 degrees
const MAX_STRETCH = 4; // magnification relative to the center
const STEPS = 24; // along each ray
const NEWTON = 4; // iterations at each step
const DIRECT = 100; // iterations without steps, as in COLMAP

/** A point of the normalized plane. */
export type Point = readonly [number, number];

/** N(r^2) / D(r^2), N being 1 plus `above` as coefficients of r^2, r^4, ..., D the same of `below`; and tangential terms. */
export interface Lens {
  above: readonly number[];
  below: readonly number[];
  tangential: Point;
}

/** Where a pixel lies: in the normalized plane, nowhere on it ("undefined"), or beyond it, as fisheyes see. */
export type Undistorted = Point | "undefined" | "beyond";

/** Undistorted points of pixels, followed outwards from the principal point (veil.geometry.camera.undistorted). */
export function undistorter(camera: Camera): (pixel: Point) => Undistorted {
  const count = focalCount(camera.model);
  const focal: Point = [camera.params[0]!, camera.params[count - 1]!];
  const center: Point = [camera.params[count]!, camera.params[count + 1]!];
  const isFisheye = camera.model.includes("FISHEYE");
  const lens = lensOf(camera, count, isFisheye);
  const isCurved = [...lens.above, ...lens.below, ...lens.tangential].some((value) => value !== 0);
  const limit = isFisheye ? MAX_OFF_AXIS_RADIANS : Math.tan(MAX_OFF_AXIS_RADIANS);
  return (pixel) => {
    const target: Point = [(pixel[0] - center[0]) / focal[0], (pixel[1] - center[1]) / focal[1]];
    let found: Undistorted = isCurved ? followed(lens, target, limit, focal) : target;
    if (!isCurved && isFisheye && Math.hypot(...target) > limit) found = "beyond";
    if (found === "beyond") return isFisheye ? "beyond" : "undefined";
    if (found === "undefined") return found;
    if (isCurved) {
      const direct = newton(lens, target, target, DIRECT);
      const isSame = direct.every((value, axis) => Math.abs(value - (found as Point)[axis]!) * focal[axis]! < 0.5);
      if (!isSame) return "undefined";
    }
    if (!isFisheye) return found;
    const theta = Math.hypot(...found);
    const scale = theta > 0 ? Math.tan(theta) / theta : 1;
    return [found[0] * scale, found[1] * scale];
  };
}

/** The distortion of a camera with a number of focal lengths, from its parameters in COLMAP's order. */
export function lensOf(camera: Camera, count: number, isFisheye: boolean): Lens {
  const distortion = camera.params.slice(count + 2);
  if (isFisheye || distortion.length <= 2) return { above: distortion, below: [], tangential: [0, 0] };
  const [k1, k2, p1, p2, ...rest] = distortion as [number, number, number, number, ...number[]];
  return { above: [k1, k2, ...rest.slice(0, 1)], below: rest.slice(1), tangential: [p1, p2] };
}

/** The undistorted point on the branch of the principal point; "undefined" where the branch ends before it. */
function followed(lens: Lens, target: Point, limit: number, focal: Point): Undistorted {
  let found: Point = [0, 0];
  let isBeyond = false;
  for (let step = 1; step <= STEPS; step++) {
    const wanted: Point = [target[0] * (step / STEPS), target[1] * (step / STEPS)];
    found = newton(lens, found, wanted, NEWTON);
    const { at, xx, xy, yy } = distorted(lens, found);
    // The derivative is symmetric; where the map has not turned over, both eigenvalues are positive.
    const mean = (xx + yy) / 2, half = Math.hypot((xx - yy) / 2, xy);
    const isNear = at.every((value, axis) => Math.abs(value - wanted[axis]!) < 0.5 / focal[axis]!);
    const isGood = mean - half > 0 && mean + half < MAX_STRETCH && isNear;
    isBeyond ||= isGood && Math.hypot(...found) > limit;
    if (!isGood && !isBeyond) return "undefined";
  }
  return isBeyond ? "beyond" : found;
}

/** The point that the lens maps to `wanted`, by at most `rounds` iterations of Newton's method from `start`. */
export function newton(lens: Lens, start: Point, wanted: Point, rounds: number): Point {
  let found = start;
  for (let round = 0; round < rounds; round++) {
    const { at, xx, xy, yy } = distorted(lens, found);
    const x = at[0] - wanted[0], y = at[1] - wanted[1];
    const determinant = xx * yy - xy * xy;
    const step: Point = [(yy * x - xy * y) / determinant, (xx * y - xy * x) / determinant];
    found = [found[0] - step[0], found[1] - step[1]];
    if (!(Math.abs(step[0]) > 1e-12 || Math.abs(step[1]) > 1e-12)) break;
  }
  return found;
}

/** The distorted point, and the derivatives xx, xy = yx, yy of the distortion there. */
export function distorted(lens: Lens, [x, y]: Point): { at: Point; xx: number; xy: number; yy: number } {
  const square = x * x + y * y;
  const [above, aboveSlope] = polynomial(square, lens.above);
  const [below, belowSlope] = polynomial(square, lens.below);
  const ratio = above / below;
  const slope = (2 * (aboveSlope - ratio * belowSlope)) / below;
  const [p1, p2] = lens.tangential;
  return {
    at: [
      x * ratio + 2 * p1 * x * y + p2 * (square + 2 * x * x),
      y * ratio + 2 * p2 * x * y + p1 * (square + 2 * y * y),
    ],
    xx: ratio + x * x * slope + 2 * p1 * y + 6 * p2 * x,
    xy: x * y * slope + 2 * p1 * x + 2 * p2 * y,
    yy: ratio + y * y * slope + 2 * p2 * x + 6 * p1 * y,
  };
}

/** The polynomial 1 + k1 s + k2 s^2 + ... and its derivative, by Horner's scheme. */
function polynomial(square: number, terms: readonly number[]): [number, number] {
  let value = 0, slope = 0;
  for (let i = terms.length - 1; i >= -1; i--) {
    const before = value;
    value = value * square + (i < 0 ? 1 : terms[i]!);
    slope = slope * square + before;
  }
  return [value, slope];
}
