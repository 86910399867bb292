/** Numbers of bits in which sketches differ, by WebAssembly where the page allows it, else by plain loops. */
import { ADD, AGAIN, BELOW, END, LOOP, STORE, assembled, constant, get, set, tee } from "./wasm.js";
/** Size of a sketch in bytes. */
export const SKETCH_BYTES = 64;
/** Numbers of bits in which sketches differ from others, in blocks of at most `block` others. */
export function differingBits(sketches, others, block) {
    return compiledBits(sketches, others, block) ?? plainBits(sketches, others, block);
}
/** Numbers by plain loops: the reference. */
export function plainBits(sketches, others, block) {
    const out = new Int32Array(block), width = SKETCH_BYTES / 4;
    const [mine, theirs] = [sketches, others].map((bytes) => new Uint32Array(bytes.slice().buffer));
    return (row, first, count) => {
        for (let other = 0, at = first * width; other < count; other++) {
            let sum = 0;
            for (let i = 0; i < width; i++, at++)
                sum += ones(mine[row * width + i] ^ theirs[at]);
            out[other] = sum;
        }
        return out;
    };
}
/** Number of ones among 32 bits. */
function ones(bits) {
    let sum = bits - ((bits >>> 1) & 0x55555555);
    sum = (sum & 0x33333333) + ((sum >>> 2) & 0x33333333);
    return Math.imul((sum + (sum >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}
/** Numbers by compiled code; null where the page forbids it. */
export function compiledBits(sketches, others, block) {
    const from = sketches.length, to = from + others.length;
    const made = assembled(4, BODY, to + 4 * block);
    if (made === null)
        return null;
    const bytes = new Uint8Array(made.buffer), out = new Int32Array(made.buffer, to, block);
    bytes.set(sketches);
    bytes.set(others, from);
    return (row, first, count) => {
        const start = from + first * SKETCH_BYTES;
        made.run(row * SKETCH_BYTES, start, start + count * SKETCH_BYTES, to);
        return out;
    };
}
// Parameters.
const SKETCH = 0, OTHER = 1, OTHERS_END = 2, OUT = 3;
const load = (offset) => [0x29, 0x03, offset]; // i64.load
const XOR = 0x85, ONES = 0x7b, SUM = 0x7c, WRAP = 0xa7; // i64.xor, i64.popcnt, i64.add, i32.wrap_i64
/** Number of differing bits of the sketch and each of `others` into `out`. */
const BODY = [
    0, // no local variables
    ...LOOP,
    ...get(OUT),
    ...Array.from({ length: SKETCH_BYTES / 8 }, (_, i) => {
        return [...get(SKETCH), ...load(8 * i), ...get(OTHER), ...load(8 * i), XOR, ONES, ...(i > 0 ? [SUM] : [])];
    }).flat(),
    WRAP,
    ...STORE,
    ...get(OUT), ...constant(4), ADD, ...set(OUT),
    ...get(OTHER), ...constant(SKETCH_BYTES), ADD, ...tee(OTHER), ...get(OTHERS_END), BELOW, ...AGAIN,
    END,
    END,
];
