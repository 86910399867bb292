/** The scale space of an image, octave by octave (Lowe 2004, Sec. 3 and 3.3): blurred images at steps of 2^(1/3). */

import type { GrayImage } from "../sift.js";
import { convolved } from "./blur.js";

/** Levels of an octave in which extrema are looked for: S, "intervals" in the paper. */
export const LEVELS = 3;
/** Blur of level 0 in pixels of its octave: 1.6 is that of level -1, as in Lowe's paper. */
export const SIGMA_0 = 1.6 * 2 ** (1 / LEVELS);
/** Blur that a photograph is taken to have. */
const CAMERA_SIGMA = 0.5;
/** Images of an octave: levels -1 to 4, so that differences at levels -1 to 3 have neighbors. */
export const IMAGES = LEVELS + 3;

/** One octave: `images[k]` is level k - 1, row by row. */
export interface Octave {
  width: number;
  height: number;
  images: Float32Array[];
}

/** The first octave of an image: as it is (0), or doubled (-1). */
export function firstOctave(image: GrayImage, first: -1 | 0): Octave {
  let { width, height } = image;
  let base = new Float32Array(width * height);
  for (let at = 0; at < base.length; at += 1) {
    base[at] = image.pixels[at]! / 255;
  }
  if (first === -1) {
    base = doubled(base, width, height);
    [width, height] = [2 * width, 2 * height];
  }
  const wanted = SIGMA_0 * 2 ** (-1 / LEVELS);
  const present = CAMERA_SIGMA * 2 ** -first;
  return grown(blurred(base, width, height, Math.sqrt(wanted ** 2 - present ** 2)), width, height);
}

/** The octave after one: every second pixel of the image that has twice the blur of its first. */
export function nextOctave(octave: Octave): Octave {
  const source = octave.images[LEVELS]!;
  const [width, height] = [octave.width >> 1, octave.height >> 1];
  const base = new Float32Array(width * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0, from = 2 * y * octave.width; x < width; x += 1, from += 2) {
      base[y * width + x] = source[from]!;
    }
  }
  return grown(base, width, height);
}

/** The octave of its first image. */
function grown(base: Float32Array, width: number, height: number): Octave {
  const images = [base];
  // What a level adds to the blur of the one before: variances add up.
  const step = SIGMA_0 * Math.sqrt(1 - 2 ** (-2 / LEVELS));
  for (let level = 0; level < IMAGES - 1; level += 1) {
    images.push(blurred(images[level]!, width, height, step * 2 ** (level / LEVELS)));
  }
  return { width, height, images };
}

/** An image of twice the size, whose new pixels are means of their neighbors. */
function doubled(image: Float32Array, width: number, height: number): Float32Array<ArrayBuffer> {
  const wide = new Float32Array(2 * width * height);
  for (let row = 0; row < height; row += 1) {
    for (let x = 0; x < width; x += 1) {
      const here = image[row * width + x]!;
      const right = image[row * width + Math.min(x + 1, width - 1)]!;
      wide[2 * (row * width + x)] = here;
      wide[2 * (row * width + x) + 1] = 0.5 * (here + right);
    }
  }
  const length = 2 * width;
  const made = new Float32Array(2 * length * height);
  for (let y = 0; y < height; y += 1) {
    const below = Math.min(y + 1, height - 1) * length;
    for (let x = 0; x < length; x += 1) {
      const here = wide[y * length + x]!;
      made[2 * y * length + x] = here;
      made[(2 * y + 1) * length + x] = 0.5 * (here + wide[below + x]!);
    }
  }
  return made;
}

/** An image after a Gaussian blur of `sigma` pixels, four of which the kernel reaches; pixels at the border go on beyond it. */
export function blurred(image: Float32Array, width: number, height: number, sigma: number): Float32Array {
  return convolved(image, width, height, gaussian(sigma));
}

/** One half of a Gaussian kernel, from its center; the whole kernel sums to one. */
function gaussian(sigma: number): Float64Array {
  const radius = Math.max(Math.ceil(4 * sigma), 1);
  const half = Float64Array.from({ length: radius + 1 }, (_, at) => Math.exp(-0.5 * (at / sigma) ** 2));
  const total = 2 * half.reduce((sum, value) => sum + value, 0) - half[0]!;
  return half.map((value) => value / total);
}
