/** Camera intrinsics: a COLMAP model with its parameters, and the image size; pixel origin at the image's top-left corner. */

import { InputError } from "./errors.js";
import { shortest } from "./numbers.js";

/** COLMAP's model names with their numbers of parameters, in the order in which messages number them. */
export const MODELS = [
  ["SIMPLE_PINHOLE", 3],
  ["PINHOLE", 4],
  ["SIMPLE_RADIAL", 4],
  ["RADIAL", 5],
  ["OPENCV", 8],
  ["OPENCV_FISHEYE", 8],
  ["FULL_OPENCV", 12],
  ["SIMPLE_RADIAL_FISHEYE", 4],
  ["RADIAL_FISHEYE", 5],
] as const;

/** Name of a COLMAP model that veil reads. */
export type CameraModel = (typeof MODELS)[number][0];

/** Intrinsics of one image. */
export interface Camera {
  model: CameraModel;
  widthPx: number;
  heightPx: number;
  /** As COLMAP orders them for the model: focal lengths and principal point in pixels, then distortion without unit. */
  params: readonly number[];
  /** Relative standard deviation of the focal length; null: it is a guess. A message rounds it up to `SENT_DEVIATIONS`. */
  focalDeviation: number | null;
}

/** Relative standard deviations of a focal length that a message can say; what is known less well is sent as a guess. */
export const SENT_DEVIATIONS = [0.01, 0.02, 0.05, 0.1] as const;
/** Relative standard deviation of a focal length that EXIF gives. */
export const FROM_EXIF = 0.05;

/** The least deviation of `SENT_DEVIATIONS` that is not below this one; null for a guess. */
export function sentDeviation(deviation: number | null): (typeof SENT_DEVIATIONS)[number] | null {
  return deviation === null ? null : (SENT_DEVIATIONS.find((sent) => deviation <= sent) ?? null);
}

/** Number of focal lengths of a model: one for radial models and SIMPLE_PINHOLE, two for the others. */
export function focalCount(model: CameraModel): 1 | 2 {
  return model.includes("RADIAL") || model === "SIMPLE_PINHOLE" ? 1 : 2;
}

/** Raise InputError for a camera of an unknown model, wrong counts, sizes outside 1..65535 px, or impossible numbers. */
export function requireCamera(camera: Camera): void {
  const known = MODELS.find(([name]) => name === camera.model);
  if (known === undefined) {
    throw new InputError(
      `camera model '${camera.model}' is not supported; use one of ${MODELS.map(([name]) => name).join(", ")}`,
    );
  }
  const { params, widthPx, heightPx } = camera;
  if (params.length !== known[1]) throw new InputError(`${known[0]} takes ${known[1]} parameters, got ${params.length}`);
  if (![widthPx, heightPx].every((side) => Number.isInteger(side) && side >= 1 && side <= 65535)) {
    throw new InputError(`image size must be 1..65535 px a side, got ${widthPx}x${heightPx}`);
  }
  if (!params.every(Number.isFinite) || !params.slice(0, focalCount(camera.model)).every((focal) => focal > 0)) {
    const shown = params.map(shortest).join(", ");
    throw new InputError(`camera parameters must be finite with a positive focal length, got (${shown})`);
  }
  const { focalDeviation } = camera;
  if (focalDeviation !== null && !(focalDeviation > 0 && focalDeviation < Infinity)) {
    throw new InputError(`the deviation of a focal length must be positive and finite, got ${String(focalDeviation)}`);
  }
}

/**
 * A SIMPLE_RADIAL camera without distortion; the focal length defaults to COLMAP's guess of 1.2 times the longer side.
 * One that is given counts as one of EXIF.
 */
export function guessedCamera(widthPx: number, heightPx: number, focalPx?: number): Camera {
  const focal = focalPx ?? 1.2 * Math.max(widthPx, heightPx);
  const params = [focal, widthPx / 2, heightPx / 2, 0];
  const focalDeviation = focalPx === undefined ? null : FROM_EXIF;
  const camera: Camera = { model: "SIMPLE_RADIAL", widthPx, heightPx, params, focalDeviation };
  requireCamera(camera);
  return camera;
}
