/** Nearest words of 8-bit descriptors: the largest product with a word of unit length, the first one of equals. */

import { dotProducts } from "./dot_products.js";

/** The word nearest to each descriptor, and the distance of the two as unit vectors. */
export interface NearestWords {
  words: Uint32Array;
  distances: Float64Array;
}

/** Words that are compared at a time, so that they stay in the processor's cache while all descriptors pass. */
const BLOCK_WORDS = 256;

/** Nearest words among 8-bit words: products in whole numbers, times the inverse of the word's length. */
export function nearestOfIntegers(descriptors: Uint8Array, stored: Uint8Array, dim: number): NearestWords {
  const count = descriptors.length / dim, size = stored.length / dim;
  const inverse = rowLengths(stored, dim).map((length) => 1 / length);
  const products = dotProducts(descriptors, stored, dim, BLOCK_WORDS);
  const words = new Uint32Array(count), best = new Float64Array(count).fill(-1);
  for (let first = 0; first < size; first += BLOCK_WORDS) {
    const block = Math.min(BLOCK_WORDS, size - first);
    for (let row = 0; row < count; row++) {
      const found = products(row, first, block);
      let word = words[row]!, most = best[row]!;
      for (let i = 0; i < block; i++) {
        const score = found[i]! * inverse[first + i]!;
        if (score > most) {
          most = score;
          word = first + i;
        }
      }
      words[row] = word;
      best[row] = most;
    }
  }
  return { words, distances: distances(descriptors, stored, dim, words) };
}

/** Nearest words among float words, which are first scaled to unit length in single precision, as Python's veil does. */
export function nearestOfFloats(descriptors: Uint8Array, stored: Float32Array, dim: number): NearestWords {
  const count = descriptors.length / dim, size = stored.length / dim;
  const lengths = rowLengths(stored, dim);
  const unit = stored.map((value, i) => value / lengths[Math.floor(i / dim)]!);
  const words = new Uint32Array(count);
  for (let row = 0; row < count; row++) {
    const descriptor = Float64Array.from(descriptors.subarray(row * dim, row * dim + dim));
    let most = -Infinity;
    for (let word = 0; word < size; word++) {
      let product = 0;
      for (let i = 0, at = word * dim; i < dim; i++, at++) product += descriptor[i]! * unit[at]!;
      if (product > most) {
        most = product;
        words[row] = word;
      }
    }
  }
  return { words, distances: distances(descriptors, unit, dim, words) };
}

/** Length of each row. */
export function rowLengths(rows: Uint8Array | Float32Array, dim: number): Float64Array {
  const out = new Float64Array(rows.length / dim);
  for (let row = 0; row < out.length; row++) {
    let sum = 0;
    for (let i = row * dim; i < (row + 1) * dim; i++) sum += rows[i]! * rows[i]!;
    out[row] = Math.sqrt(sum);
  }
  return out;
}

/** Distance of each descriptor to its word, both scaled to unit length. */
function distances(
  descriptors: Uint8Array,
  stored: Uint8Array | Float32Array,
  dim: number,
  words: Uint32Array,
): Float64Array {
  return Float64Array.from(words, (word, row) => {
    const descriptor = descriptors.subarray(row * dim, row * dim + dim), near = stored.subarray(word * dim, word * dim + dim);
    const [a, b] = [rowLengths(descriptor, dim)[0]!, rowLengths(near, dim)[0]!];
    let sum = 0;
    for (let i = 0; i < dim; i++) sum += (descriptor[i]! / a - near[i]! / b) ** 2;
    return Math.sqrt(sum);
  });
}
