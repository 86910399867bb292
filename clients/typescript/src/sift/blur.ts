/** Gaussian blur by WebAssembly's SIMD where the engine has it, else by plain loops; they differ in rounding alone. */

import { ADD, AGAIN, BELOW, END, LOOP, assembled, constant, get, set, tee } from "../wasm.js";

/** An image after a blur by one half of a kernel, from its center; pixels at the border go on beyond it. */
export function convolved(image: Float32Array, width: number, height: number, kernel: Float64Array): Float32Array {
  return convolvedBySimd(image, width, height, kernel) ?? convolvedPlainly(image, width, height, kernel);
}

/** The same by plain loops, summed up in double precision: the reference. */
export function convolvedPlainly(image: Float32Array, width: number, height: number, kernel: Float64Array): Float32Array {
  return blurredColumns(blurredRows(image, width, height, kernel), width, height, kernel);
}

const STEP = 64; // bytes that the loop takes at a time: 16 pixels
const PAGES = 1 << 16;
let kept: { run: (...values: number[]) => void; buffer: ArrayBuffer } | null = null;

/** The same by SIMD in single precision; null where the engine has none, or where the page forbids it to compile. */
export function convolvedBySimd(image: Float32Array, width: number, height: number, kernel: Float64Array): Float32Array | null {
  // Rows with a margin at both ends, then all of them with a margin above and below, in two buffers with room for a step beyond.
  const margin = kernel.length - 1, across = width + 2 * margin, down = height + 2 * margin;
  const size = STEP * Math.ceil((4 * across * down) / STEP) + STEP, weights = 2 * size, bytes = weights + 4 * kernel.length;
  if (kept === null || kept.buffer.byteLength < bytes) kept = assembled(6, BODY, PAGES * Math.ceil(bytes / PAGES));
  if (kept === null) return null;
  const { run, buffer } = kept;
  const first = new Float32Array(buffer, 0, across * down), second = new Float32Array(buffer, size, across * down);
  new Float32Array(buffer, weights, kernel.length).set(kernel);
  for (let y = 0; y < height; y++) {
    const row = y * width, to = (y + margin) * across;
    first.fill(image[row]!, to, to + margin);
    first.set(image.subarray(row, row + width), to + margin);
    first.fill(image[row + width - 1]!, to + margin + width, to + across);
  }
  const start = 4 * margin * across, end = start + 4 * height * across;
  // What is computed for the margins is not used.
  run(start, end, size + start, 4, weights, weights + 4 * kernel.length);
  for (let y = 0; y < margin; y++) {
    second.copyWithin(y * across, margin * across, (margin + 1) * across);
    second.copyWithin((margin + height + y) * across, (margin + height - 1) * across, (margin + height) * across);
  }
  run(size + start, size + end, start, 4 * across, weights, weights + 4 * kernel.length);
  const made = new Float32Array(width * height);
  for (let y = 0; y < height; y++) {
    const from = (y + margin) * across + margin;
    made.set(first.subarray(from, from + width), y * width);
  }
  return made;
}

const load = (offset: number): number[] => [0xfd, 0x00, 0x02, offset];
const store = (offset: number): number[] => [0xfd, 0x0b, 0x02, offset];
const SPLAT = [0xfd, 0x09, 0x02, 0x00]; // v128.load32_splat
const PLUS = [0xfd, 0xe4, 0x01], TIMES = [0xfd, 0xe6, 0x01]; // f32x4
const MINUS = 0x6b; // i32.sub
// Parameters, then local variables.
const AT = 0, AT_END = 1, OUT = 2, STRIDE = 3, WEIGHTS = 4, WEIGHTS_END = 5;
const WEIGHT = 6, AFTER = 7, BEFORE = 8, SHARE = 9, SUMS = 10;
const OFFSETS = [0, 16, 32, 48];

/** Weighted sums of values `stride` bytes apart around each place from `at` to `atEnd`, written from `out` on. */
const BODY = [
  ...[2, 3, 0x7f, 5, 0x7b], // three i32, five v128
  ...LOOP,
  ...get(WEIGHTS), ...SPLAT, ...set(SHARE),
  ...OFFSETS.flatMap((offset, i) => [...get(AT), ...load(offset), ...get(SHARE), ...TIMES, ...set(SUMS + i)]),
  ...get(WEIGHTS), ...constant(4), ADD, ...set(WEIGHT),
  ...get(AT), ...get(STRIDE), ADD, ...set(AFTER),
  ...get(AT), ...get(STRIDE), MINUS, ...set(BEFORE),
  ...LOOP,
  ...get(WEIGHT), ...SPLAT, ...set(SHARE),
  ...OFFSETS.flatMap((offset, i) => [
    ...get(SUMS + i),
    ...get(AFTER), ...load(offset), ...get(BEFORE), ...load(offset), ...PLUS, ...get(SHARE), ...TIMES,
    ...PLUS, ...set(SUMS + i),
  ]),
  ...get(AFTER), ...get(STRIDE), ADD, ...set(AFTER),
  ...get(BEFORE), ...get(STRIDE), MINUS, ...set(BEFORE),
  ...get(WEIGHT), ...constant(4), ADD, ...tee(WEIGHT), ...get(WEIGHTS_END), BELOW, ...AGAIN,
  END,
  ...OFFSETS.flatMap((offset, i) => [...get(OUT), ...get(SUMS + i), ...store(offset)]),
  ...get(OUT), ...constant(STEP), ADD, ...set(OUT),
  ...get(AT), ...constant(STEP), ADD, ...tee(AT), ...get(AT_END), BELOW, ...AGAIN,
  END,
  END,
];

function blurredRows(image: Float32Array, width: number, height: number, kernel: Float64Array): Float32Array {
  const radius = kernel.length - 1;
  const made = new Float32Array(width * height);
  const padded = new Float64Array(width + 2 * radius);
  const center = kernel[0]!;
  for (let y = 0; y < height; y += 1) {
    const row = y * width;
    padded.fill(image[row]!, 0, radius);
    padded.set(image.subarray(row, row + width), radius);
    padded.fill(image[row + width - 1]!, radius + width);
    for (let x = 0; x < width; x += 1) {
      const at = x + radius;
      let sum = center * padded[at]!;
      for (let k = 1; k <= radius; k += 1) {
        sum += kernel[k]! * (padded[at - k]! + padded[at + k]!);
      }
      made[row + x] = sum;
    }
  }
  return made;
}

function blurredColumns(image: Float32Array, width: number, height: number, kernel: Float64Array): Float32Array {
  const radius = kernel.length - 1;
  const made = new Float32Array(width * height);
  const sums = new Float64Array(width);
  for (let y = 0; y < height; y += 1) {
    const center = kernel[0]!;
    for (let x = 0, at = y * width; x < width; x += 1, at += 1) {
      sums[x] = center * image[at]!;
    }
    // Row by row, as memory lies.
    for (let k = 1; k <= radius; k += 1) {
      const weight = kernel[k]!;
      let above = Math.max(y - k, 0) * width;
      let below = Math.min(y + k, height - 1) * width;
      for (let x = 0; x < width; x += 1, above += 1, below += 1) {
        sums[x] = sums[x]! + weight * (image[above]! + image[below]!);
      }
    }
    made.set(sums, y * width);
  }
  return made;
}
