/** Products of rows of 8 or 16 bits in whole numbers, by WebAssembly's SIMD where the engine has it, else by plain loops: both exact. */
import { ADD, AGAIN, BELOW, END, LOOP, STORE, assembled, constant, get, set, tee } from "./wasm.js";
/** Products of descriptors with words, in blocks of at most `block` words, by the faster way that the engine has. */
export function dotProducts(descriptors, stored, dim, block) {
    return simdProducts(descriptors, stored, dim, block) ?? plainProducts(descriptors, stored, dim, block);
}
/** Products by plain loops: the reference. */
export function plainProducts(descriptors, stored, dim, block) {
    const out = new Int32Array(block), descriptor = new Int32Array(dim);
    return (row, first, count) => {
        descriptor.set(descriptors.subarray(row * dim, (row + 1) * dim));
        for (let word = 0, at = first * dim; word < count; word++) {
            let sum = 0;
            for (let i = 0; i < dim; i++, at++)
                sum += descriptor[i] * stored[at];
            out[word] = sum;
        }
        return out;
    };
}
const STEP = 16; // values that the loop takes at a time
/** Products by SIMD; null where the engine has none, or where the page forbids it to compile (`wasm-unsafe-eval`). */
export function simdProducts(descriptors, stored, dim, block) {
    // Rows of 16-bit values, padded with zeros to whole steps: descriptors, words, then the products of a block.
    const width = STEP * Math.ceil(dim / STEP), rowBytes = 2 * width;
    const words = (descriptors.length / dim) * rowBytes, products = words + (stored.length / dim) * rowBytes;
    const made = assembled(5, BODY, products + 4 * block);
    if (made === null)
        return null;
    const values = new Int16Array(made.buffer, 0, products / 2);
    spread(descriptors, dim, width, values.subarray(0, words / 2));
    spread(stored, dim, width, values.subarray(words / 2));
    const out = new Int32Array(made.buffer, products, block);
    return (row, first, count) => {
        const start = words + first * rowBytes;
        made.run(row * rowBytes, start, start + count * rowBytes, rowBytes, products);
        return out;
    };
}
/** Copy rows of `dim` values to rows of `width` values. */
function spread(rows, dim, width, to) {
    for (let row = 0; row * dim < rows.length; row++)
        to.set(rows.subarray(row * dim, (row + 1) * dim), row * width);
}
const load = (offset) => [0xfd, 0x00, 0x04, offset];
const lane = (index) => [0xfd, 0x1b, index];
const DOT = [0xfd, 0xba, 0x01]; // i32x4.dot_i16x8_s
const ADD4 = [0xfd, 0xae, 0x01]; // i32x4.add
const ZERO = [0xfd, 0x0c, ...new Array(16).fill(0)]; // v128.const
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
