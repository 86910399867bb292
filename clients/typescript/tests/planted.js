/** The vectors' image, dictionaries and secret. */

import { Dictionary } from "../dist/dictionary.js";
import { Secret } from "../dist/randomness.js";
import { bytes, fromBase64, vectors } from "./vectors.js";

export const { image: planted } = vectors;
export const secret = new Secret(bytes(vectors.draws.secret));
const words = fromBase64(planted.words);

/** The vectors' image. */
export function image() {
  const keypoints = new Float32Array(fromBase64(planted.keypoints).buffer), descriptors = fromBase64(planted.descriptors);
  return {
    features: { width: 640, height: 480, count: keypoints.length / 2, keypoints, descriptors, normalization: "L2" },
    camera: { model: "SIMPLE_RADIAL", widthPx: 640, heightPx: 480, params: planted.params, focalDeviation: 0.01 },
    digest: bytes(planted.digest),
  };
}

/** The vectors' dictionary, of 8-bit words or of floats. */
export function dictionary(floats = false, imageDigests = []) {
  const stored = floats ? Float32Array.from(words, (value) => Math.fround(value / 3)) : words;
  const facts = { descriptor: "sift", normalization: "L2", dim: 128, stored, digest: planted.books[Number(floats)] };
  return new Dictionary({ ...facts, imageDigests });
}
