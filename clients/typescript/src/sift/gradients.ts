/** Gradients of a blurred image, by length and direction. */

import type { Octave } from "./scale_space.js";

/** Lengths and directions (radians, 0 to 2 pi, from x towards y) of the gradients of an image, row by row. */
export interface Gradients {
  width: number;
  height: number;
  lengths: Float32Array;
  angles: Float32Array;
}

/** The gradients of a level (0, 1, 2) of an octave: central differences, and one-sided ones at the border. */
export function gradients(octave: Octave, level: number): Gradients {
  const { width, height } = octave;
  const image = octave.images[level + 1]!;
  const lengths = new Float32Array(width * height);
  const angles = new Float32Array(width * height);
  for (let y = 0; y < height; y += 1) {
    const [up, down] = [y > 0 ? width : 0, y < height - 1 ? width : 0];
    const halfY = up > 0 && down > 0 ? 0.5 : 1;
    for (let x = 0, at = y * width; x < width; x += 1, at += 1) {
      const left = x > 0 ? 1 : 0, right = x < width - 1 ? 1 : 0;
      const gx = (image[at + right]! - image[at - left]!) * (left + right === 2 ? 0.5 : 1);
      const gy = (image[at + down]! - image[at - up]!) * halfY;
      lengths[at] = Math.sqrt(gx * gx + gy * gy);
      angles[at] = direction(gy, gx);
    }
  }
  return { width, height, lengths, angles };
}

/**
 * The direction of a vector from 0 to 2 pi by a cubic in (|x| - |y|) / (|x| + |y|), as VLFeat's documentation of its fast
 * arctangent gives it: at most 0.01 rad off, and several times as fast as Math.atan2.
 */
function direction(y: number, x: number): number {
  const high = Math.abs(y) + 1.19209290e-7;
  const ratio = x >= 0 ? (x - high) / (x + high) : (x + high) / (high - x);
  const angle = (x >= 0 ? Math.PI / 4 : (3 * Math.PI) / 4) + (0.1821 * ratio * ratio - 0.9675) * ratio;
  return y < 0 ? 2 * Math.PI - angle : angle;
}
