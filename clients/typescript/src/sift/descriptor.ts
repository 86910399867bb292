/** Descriptors: 4 x 4 histograms of 8 directions of the gradients around a keypoint (Lowe 2004, Sec. 6). */

import type { Normalization } from "../features.js";
import { expOfMinus } from "./exponential_table.js";
import type { Extremum } from "./extrema.js";
import type { Gradients } from "./gradients.js";

const CELLS = 4;
const DIRECTIONS = 8;
/** Numbers of a descriptor. */
export const DESCRIPTOR_LENGTH = CELLS * CELLS * DIRECTIONS;
/** Side of a cell, in sigmas of the keypoint. */
const CELL_SIGMAS = 3;
/** Sigma of the Gaussian window, in cells. */
const WINDOW_CELLS = CELLS / 2;
/** Largest share of one direction in a descriptor of unit length. */
const MOST = 0.2;
const STEPS = 512;
/** Cells with a margin of one around them, which gathers what lies outside; a step down and one across in the histogram. */
const DOWN = (CELLS + 2) * DIRECTIONS, ACROSS = DIRECTIONS;
const margined = new Float64Array((CELLS + 2) * DOWN);

/** The descriptor of a keypoint in one of its directions, of unit length, rows of cells from the top, as Lowe orders them. */
export function describe(one: Extremum, angle: number, gradient: Gradients): Float64Array {
  const { width, height, lengths, angles } = gradient;
  const side = CELL_SIGMAS * one.sigma, cosine = Math.cos(angle) / side, sine = Math.sin(angle) / side;
  const radius = Math.floor((Math.SQRT2 * side * (CELLS + 1)) / 2 + 0.5);
  const centerX = Math.floor(one.x + 0.5), centerY = Math.floor(one.y + 0.5);
  const reach = CELLS / 2 + 0.5, turns = DIRECTIONS / (2 * Math.PI);
  const [left, right] = [Math.max(centerX - radius, 1), Math.min(centerX + radius, width - 2)];
  margined.fill(0);
  for (let y = Math.max(centerY - radius, 1); y <= Math.min(centerY + radius, height - 2); y += 1) {
    const dy = y - one.y, row = y * width;
    for (let x = left; x <= right; x += 1) {
      const dx = x - one.x;
      // In cells, along the keypoint's direction and across it, from the center of the descriptor.
      const along = cosine * dx + sine * dy, across = cosine * dy - sine * dx;
      if (along >= reach || along <= -reach || across >= reach || across <= -reach) {
        continue;
      }
      const weight = expOfMinus((along * along + across * across) / (2 * WINDOW_CELLS ** 2)) * lengths[row + x]!;
      let direction = (angles[row + x]! - angle) * turns;
      direction -= DIRECTIONS * Math.floor(direction / DIRECTIONS);
      // Shared among the cells and directions around a place, trilinearly.
      const column = along + reach, line = across + reach, first = direction | 0, cellX = column | 0, cellY = line | 0;
      const inRight = column - cellX, inBottom = line - cellY, inSecond = direction - first;
      // COLMAP stores directions clockwise, as Lowe's program does: bin 0, then 7 down to 1.
      const one0 = (DIRECTIONS - first) & 7, one1 = (2 * DIRECTIONS - 1 - first) & 7;
      const cell = cellY * DOWN + cellX * ACROSS, second = weight * inSecond, rest = weight - second;
      const top = 1 - inBottom, near = 1 - inRight;
      margined[cell + one0]! += rest * top * near;
      margined[cell + one1]! += second * top * near;
      margined[cell + ACROSS + one0]! += rest * top * inRight;
      margined[cell + ACROSS + one1]! += second * top * inRight;
      margined[cell + DOWN + one0]! += rest * inBottom * near;
      margined[cell + DOWN + one1]! += second * inBottom * near;
      margined[cell + DOWN + ACROSS + one0]! += rest * inBottom * inRight;
      margined[cell + DOWN + ACROSS + one1]! += second * inBottom * inRight;
    }
  }
  const histogram = new Float64Array(DESCRIPTOR_LENGTH);
  for (let line = 0; line < CELLS; line += 1) {
    const from = (line + 1) * DOWN + ACROSS;
    histogram.set(margined.subarray(from, from + CELLS * DIRECTIONS), line * CELLS * DIRECTIONS);
  }
  scaleToUnit(histogram);
  for (let at = 0; at < DESCRIPTOR_LENGTH; at += 1) {
    histogram[at] = Math.min(histogram[at]!, MOST);
  }
  scaleToUnit(histogram);
  return histogram;
}

function scaleToUnit(values: Float64Array): void {
  let sum = 0;
  for (let at = 0; at < values.length; at += 1) {
    sum += values[at]! * values[at]!;
  }
  const length = Math.sqrt(sum);
  for (let at = 0; length > 0 && at < values.length; at += 1) {
    values[at]! /= length;
  }
}

/** A descriptor as 8 bits: of unit length ("L2"), or the root of its shares ("L1_ROOT"), in steps of 1/512. */
export function quantize(histogram: Float64Array, normalization: Normalization): Uint8Array {
  const made = new Uint8Array(histogram.length);
  let sum = 0;
  for (let at = 0; at < histogram.length; at += 1) {
    sum += histogram[at]!;
  }
  const isRoot = normalization !== "L2" && sum !== 0;
  for (let at = 0; at < histogram.length; at += 1) {
    const value = isRoot ? Math.sqrt(histogram[at]! / sum) : histogram[at]!;
    made[at] = Math.min(Math.round(STEPS * value), 255);
  }
  return made;
}
