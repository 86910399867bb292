/** Checks of intrinsics where they come in: bounds that every camera meets which can have taken a photograph. */

import { type Camera, focalCount, requireCamera } from "./camera.js";
import { InputError } from "./errors.js";
import { type Point, undistorter } from "./lens.js";
import { general } from "./numbers.js";

const MAX_PIXELS = 1 << 28;
// Focal lengths in longer sides, which is COLMAP's range as well.
const MIN_FOCAL = 0.1, MAX_FOCAL = 10;
const MAX_ASPECT = 2;
const MAX_OUTSIDE = 1;
const MARGIN_PX = 2; // around the image where keypoints may lie: detectors fit parabolas at its border
const MIN_SEEN = 0.1; // share of a fisheye's image that must lie on the normalized plane
const GRID = 17; // samples along each side of the image
const OUTLINE = 16; // samples of each side of the image's outline

/** Raise InputError, with the value and a remedy, if no photograph can have these intrinsics. */
export function requirePlausible(camera: Camera): void {
  requireCamera(camera);
  const { model, widthPx, heightPx, params } = camera;
  const key = [model, widthPx, heightPx, ...params].join(" ");
  if (plausible.has(key)) return;
  const reason = implausible(camera) ?? implausibleDistortion(camera);
  if (reason !== null) throw new InputError(reason);
  if (plausible.size >= MOST_KEPT) plausible.clear();
  plausible.add(key);
}

// Cameras that were found plausible: one camera takes many photographs, and the check milliseconds.
const plausible = new Set<string>();
const MOST_KEPT = 256;

function implausible(camera: Camera): string | null {
  const { widthPx, heightPx, params } = camera;
  const size = `${widthPx}x${heightPx} px`, longer = Math.max(widthPx, heightPx), count = focalCount(camera.model);
  if (widthPx * heightPx > MAX_PIXELS) {
    return `an image of ${size} is too large (at most ${MAX_PIXELS} pixels); scale it down`;
  }
  const focal = params.slice(0, count);
  for (const value of focal) {
    if (!(MIN_FOCAL * longer <= value && value <= MAX_FOCAL * longer)) {
      return (
        `a focal length of ${general(value)} px is not one of an image of ${size} (veil takes ${MIN_FOCAL} to ${MAX_FOCAL} ` +
        "times the longer side); give the camera in pixels of this image"
      );
    }
  }
  if (Math.max(...focal) > MAX_ASPECT * Math.min(...focal)) {
    const [x, y] = [focal[0]!, focal[count - 1]!];
    return `focal lengths of ${general(x)} and ${general(y)} px differ by more than ${MAX_ASPECT}; check the camera`;
  }
  const [x, y] = [params[count]!, params[count + 1]!];
  const isNear = (value: number, side: number) => -MAX_OUTSIDE * side <= value && value <= (1 + MAX_OUTSIDE) * side;
  if (isNear(x, widthPx) && isNear(y, heightPx)) return null;
  return (
    `the principal point (${general(x)}, ${general(y)}) lies more than a side outside the image of ${size}; ` +
    "give the camera in pixels of this image"
  );
}

function implausibleDistortion(camera: Camera): string | null {
  const { widthPx, heightPx } = camera;
  const undistorted = undistorter(camera);
  let beyond = 0;
  for (let row = 0; row < GRID; row++) {
    for (let column = 0; column < GRID; column++) {
      const pixel: Point = [(column / (GRID - 1)) * widthPx, (row / (GRID - 1)) * heightPx];
      const point = undistorted(pixel);
      if (point === "beyond") beyond++;
      if (point === "undefined") {
        return (
          `${shown(camera)} cannot be undone at pixel (${general(pixel[0])}, ${general(pixel[1])}) of the image of ` +
          `${widthPx}x${heightPx} px; calibrate the camera again, or use a model that fits its lens`
        );
      }
    }
  }
  if (1 - beyond / GRID ** 2 >= MIN_SEEN) return null;
  return (
    `${shown(camera)} sees most of its image of ${widthPx}x${heightPx} px more than 88 degrees off the axis; ` +
    "calibrate the camera again, or use a model that fits its lens"
  );
}

function shown(camera: Camera): string {
  const distortion = camera.params.slice(focalCount(camera.model) + 2);
  return `${camera.model} with distortion ${distortion.map((value) => general(value)).join(", ")}`;
}

/** Raise InputError unless all keypoints (x, y pairs in pixels) lie in the image, up to a margin of 2 px; NaN does not. */
export function requireInside({ widthPx, heightPx }: Camera, keypoints: Float32Array): void {
  const isInside = (value: number, side: number) => value >= -MARGIN_PX && value <= side + MARGIN_PX;
  let outside = 0, first = -1;
  for (let i = 0; i < keypoints.length; i += 2) {
    if (isInside(keypoints[i]!, widthPx) && isInside(keypoints[i + 1]!, heightPx)) continue;
    if (outside++ === 0) first = i;
  }
  if (outside === 0) return;
  throw new InputError(
    `${outside} keypoints lie outside the image of ${widthPx}x${heightPx} px (first: row ${first / 2} at ` +
      `(${general(keypoints[first]!)}, ${general(keypoints[first + 1]!)})); give positions in pixels of this image`,
  );
}

/** Raise InputError unless all lines n . x + c = 0 (triples n_x, n_y, c) of the normalized plane meet the image. */
export function requireCrossing(camera: Camera, coefficients: Float32Array): void {
  const { widthPx, heightPx, params } = camera;
  const undistorted = undistorter(camera);
  const outline: Point[] = [];
  for (const pixel of border(widthPx, heightPx)) {
    const point = undistorted(pixel);
    if (typeof point === "string") return; // fisheyes whose outline leaves the normalized plane bound nothing
    outline.push(point);
  }
  // Between samples the outline bulges by less than a step's width; a step is 1/16 of a side.
  const extent = outline.reduce((most, point) => Math.max(most, Math.abs(point[0]), Math.abs(point[1])), 0);
  const margin = MARGIN_PX / Math.min(...params.slice(0, focalCount(camera.model))) + 0.01 * extent;
  for (let i = 0; i < coefficients.length; i += 3) {
    let least = Infinity, most = -Infinity;
    for (const [x, y] of outline) {
      const side = coefficients[i]! * x + coefficients[i + 1]! * y + coefficients[i + 2]!;
      [least, most] = [Math.min(least, side), Math.max(most, side)];
    }
    if (least <= margin && most >= -margin) continue;
    throw new InputError(
      `line ${i / 3} does not meet the image of ${widthPx}x${heightPx} px; give lines in the undistorted normalized plane ` +
        "of this camera",
    );
  }
}

/** Pixels along the image's outline, in order. */
function border(width: number, height: number): Point[] {
  const along = Array.from({ length: OUTLINE }, (_, i) => i / OUTLINE);
  return [
    ...along.map((t): Point => [t * width, 0]),
    ...along.map((t): Point => [width, t * height]),
    ...along.map((t): Point => [(1 - t) * width, height]),
    ...along.map((t): Point => [0, (1 - t) * height]),
  ];
}
