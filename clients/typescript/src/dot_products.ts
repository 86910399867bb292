/** Products of 8-bit rows in whole numbers, by WebAssembly's SIMD where the engine has it, else by plain loops: both exact. */

/** Products of descriptor `row` with `count` words from `first` on; the array is used again by the next call. */
export type Products = (row: number, first: number, count: number) => Int32Array;

/** Products of descriptors with words, in blocks of at most `block` words, by the faster way that the engine has. */
export function dotProducts(descriptors: Uint8Array, stored: Uint8Array, dim: number, block: number): Products {
  return simdProducts(descriptors, stored, dim, block) ?? plainProducts(descriptors, stored, dim, block);
}

/** Products by plain loops: the reference. */
export function plainProducts(descriptors: Uint8Array, stored: Uint8Array, dim: number, block: number): Products {
  const out = new Int32Array(block), descriptor = new Int32Array(dim);
  return (row, first, count) => {
    descriptor.set(descriptors.subarray(row * dim, (row + 1) * dim));
    for (let word = 0, at = first * dim; word < count; word++) {
      let sum = 0;
      for (let i = 0; i < dim; i++, at++) sum += descriptor[i]! * stored[at]!;
      out[word] = sum;
    }
    return out;
  };
}

const PAGE = 1 << 16;
const STEP = 16; // values that the loop takes at a time

/** Products by SIMD; null where the engine has none, or where the page forbids it to compile (`wasm-unsafe-eval`). */
export function simdProducts(descriptors: Uint8Array, stored: Uint8Array, dim: number, block: number): Products | null {
  // Rows of 16-bit values, padded with zeros to whole steps: descriptors, words, then the products of a block.
  const width = STEP * Math.ceil(dim / STEP), rowBytes = 2 * width;
  const words = (descriptors.length / dim) * rowBytes, products = words + (stored.length / dim) * rowBytes;
  let memory: WebAssembly.Memory, kernel: (...values: number[]) => void;
  try {
    memory = new WebAssembly.Memory({ initial: Math.ceil((products + 4 * block) / PAGE) });
    const module = new WebAssembly.Module(KERNEL);
    kernel = new WebAssembly.Instance(module, { a: { m: memory } }).exports.f as typeof kernel;
  } catch {
    return null;
  }
  const values = new Int16Array(memory.buffer, 0, products / 2);
  spread(descriptors, dim, width, values.subarray(0, words / 2));
  spread(stored, dim, width, values.subarray(words / 2));
  const out = new Int32Array(memory.buffer, products, block);
  return (row, first, count) => {
    const start = words + first * rowBytes;
    kernel(row * rowBytes, start, start + count * rowBytes, rowBytes, products);
    return out;
  };
}

/** Copy rows of `dim` values to rows of `width` values. */
function spread(rows: Uint8Array, dim: number, width: number, to: Int16Array): void {
  for (let row = 0; row * dim < rows.length; row++) to.set(rows.subarray(row * dim, (row + 1) * dim), row * width);
}

const get = (local: number): number[] => [0x20, local];
const set = (local: number): number[] => [0x21, local];
const tee = (local: number): number[] => [0x22, local];
const load = (offset: number): number[] => [0xfd, 0x00, 0x04, offset];
const lane = (index: number): number[] => [0xfd, 0x1b, index];
const constant = (value: number): number[] => [0x41, value];
const section = (id: number, ...content: number[]): number[] => [id, content.length, ...content];
const ADD = 0x6a, BELOW = 0x49, LOOP = [0x03, 0x40], AGAIN = [0x0d, 0x00], END = 0x0b, STORE = [0x36, 0x02, 0x00];
const DOT = [0xfd, 0xba, 0x01]; // i32x4.dot_i16x8_s
const ADD4 = [0xfd, 0xae, 0x01]; // i32x4.add
const ZERO = [0xfd, 0x0c, ...new Array<number>(16).fill(0)]; // v128.const
// Parameters, then local variables.
const DESCRIPTOR = 0, WORDS = 1, WORDS_END = 2, ROW_BYTES = 3, OUT = 4, AT = 5, ROW_END = 6, EVEN = 7, ODD = 8;

/** `dot(descriptor, word)` into `out` for each row from `words` to `wordsEnd`; two sums hide how long an addition takes. */
const BODY = [
  ...[2, 2, 0x7f, 2, 0x7b], // two i32, two v128
  ...LOOP,
  ...get(DESCRIPTOR), ...tee(AT), ...get(ROW_BYTES), ADD, ...set(ROW_END),
  ...ZERO, ...tee(EVEN), ...set(ODD),
  ...LOOP,
  ...get(EVEN), ...get(AT), ...load(0), ...get(WORDS), ...load(0), ...DOT, ...ADD4, ...set(EVEN),
  ...get(ODD), ...get(AT), ...load(16), ...get(WORDS), ...load(16), ...DOT, ...ADD4, ...set(ODD),
  ...get(WORDS), ...constant(32), ADD, ...set(WORDS),
  ...get(AT), ...constant(32), ADD, ...tee(AT), ...get(ROW_END), BELOW, ...AGAIN,
  END,
  ...get(OUT),
  ...get(EVEN), ...get(ODD), ...ADD4, ...tee(EVEN), ...lane(0),
  ...get(EVEN), ...lane(1), ADD, ...get(EVEN), ...lane(2), ADD, ...get(EVEN), ...lane(3), ADD,
  ...STORE,
  ...get(OUT), ...constant(4), ADD, ...set(OUT),
  ...get(WORDS), ...get(WORDS_END), BELOW, ...AGAIN,
  END,
  END,
];

/** A module (WebAssembly core specification, 5.5) that imports a memory as `a.m` and exports the function as `f`. */
const KERNEL = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
  ...section(1, 1, 0x60, 5, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0),
  ...section(2, 1, 1, 0x61, 1, 0x6d, 0x02, 0x00, 1),
  ...section(3, 1, 0),
  ...section(7, 1, 1, 0x66, 0x00, 0),
  ...[10, ...leb(BODY.length + 1 + leb(BODY.length).length), 1, ...leb(BODY.length), ...BODY],
);

/** A whole number below 2^14 in the encoding of WebAssembly. */
function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, value >> 7];
}
