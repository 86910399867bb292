/** Messages: everything that may leave the device, with no field for anything else. */

import type { Camera } from "./camera.js";
import type { Normalization } from "./features.js";
import type { SubsetMechanism } from "./mechanism.js";

/** Space of descriptors: their kind and normalization, and the public projection that was applied, if any. */
export interface Space {
  descriptor: string;
  normalization: Normalization;
  dim: number;
  /** SHA-256 (hex) of the codebook whose PCA was applied; "" where none was. */
  codebook: string;
  /** Width of the dither in steps of 1/512. */
  ditherSteps: number;
}

/** Random subsets of a public dictionary's words, one in place of each descriptor. */
export interface Subsets {
  /** `mechanism.m` ids of each feature, distinct and ascending. */
  ids: Uint32Array;
  mechanism: SubsetMechanism;
  space: Space;
  /** SHA-256 (hex) of the codebook that the ids number. */
  dictionary: string;
}

/** A vector of the camera frame (x right, y down, z forward). */
export type Vector = readonly [number, number, number];

/** Lines through the keypoints in place of their positions, in the undistorted normalized image plane. */
export interface Lines {
  /** (n_x, n_y, c) of each line, with unit normal n, so that n . x + c = 0. */
  coefficients: Float32Array;
  /** Whether each line follows gravity. */
  aligned: readonly boolean[];
  /** Unit vector that points down; null if it is not known. */
  gravity: Vector | null;
}

/** One image as the server sees it, with keypoint positions (x, y pairs in pixels) in an order that tells nothing. */
export interface Upload {
  kind: "positions";
  camera: Camera;
  keypoints: Float32Array;
  form: Subsets;
  /** Unit vector that points down; null if it is not sent. No guarantee covers it. */
  gravity: Vector | null;
}

/** One image as the server sees it, with a line through each keypoint in place of its position. */
export interface LineUpload {
  kind: "lines";
  camera: Camera;
  lines: Lines;
  form: Subsets;
}

/** What a message of words holds. */
export type Message = Upload | LineUpload;
