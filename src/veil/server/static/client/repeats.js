/**
 * Near repeats: features that left before leave again with the words that they had (docs/theory/release.md#near-repeats).
 *
 * Words drawn anew for each frame of a video tell more with every frame. The device recognizes a feature by a sketch, and keeps
 * no descriptor. Sketches and pairs are those of Python's `veil.mechanisms.repeats`.
 */
import { utf8 } from "./bytes.js";
import { rowLengths } from "./nearest.js";
import { gaussian } from "./randomness.js";
export const SKETCH_BITS = 512;
export const SKETCH_BYTES = SKETCH_BITS / 8;
/** Distance of unit descriptors up to which one feature shows the other again. */
export const SAME = 0.6;
const DIM = 128;
/** The secret directions that sketches are made with: 512 rows of 128 standard normal numbers. */
export function sketchDirections(randomness) {
    const directions = new Float64Array(SKETCH_BITS * DIM);
    for (let bit = 0; bit < SKETCH_BITS; bit++) {
        directions.set(gaussian(randomness.bits64(utf8(`sketch|${bit}`), DIM)), bit * DIM);
    }
    return directions;
}
/**
 * Sketches of descriptors, 64 bytes each: on which side of each of 512 secret hyperplanes they lie.
 *
 * Two descriptors at an angle a lie on different sides of a share a / pi of them (docs/theory/release.md, Eq. 17). Sums may
 * differ from Python's in their last digits, so a bit could where a descriptor lies on a hyperplane to 15 digits.
 */
export function sketched(descriptors, directions) {
    const count = descriptors.length / DIM, sketches = new Uint8Array(count * SKETCH_BYTES);
    const unit = new Float64Array(DIM), lengths = rowLengths(descriptors, DIM);
    for (let row = 0; row < count; row++) {
        for (let i = 0; i < DIM; i++)
            unit[i] = Math.fround(descriptors[row * DIM + i] / lengths[row]);
        for (let bit = 0, at = 0; bit < SKETCH_BITS; bit++) {
            let side = 0;
            for (let i = 0; i < DIM; i++, at++)
                side += unit[i] * directions[at];
            if (side > 0)
                sketches[row * SKETCH_BYTES + (bit >> 3)] |= 0x80 >> (bit & 7);
        }
    }
    return sketches;
}
/** Number of bits in which sketches of two unit descriptors at this distance differ, in the mean. */
export function mostBits(distance) {
    return Math.round((SKETCH_BITS * 2 * Math.asin(Math.min(1, distance / 2))) / Math.PI);
}
/**
 * Words of a release with the earlier ones of those of its features that left before; `sketches` are those of its features.
 *
 * Pairs of a feature and an earlier one within `SAME` are formed one to one, the nearest first. A feature that may show an
 * earlier one again, but got none, does not leave: drawn anew it would tell more of both. Words of epsilon 0 are drawn anew, as
 * equal ones would say what nothing is to say.
 */
export function withEarlierWords({ ids, mechanism }, sketches, earlier) {
    const { m, epsilon } = mechanism, count = ids.length / m;
    const near = epsilon === 0 ? [] : nearPairs(sketches, earlier.sketches);
    const partner = new Int32Array(count).fill(-1), taken = new Set();
    for (const [feature, other] of near) {
        if (partner[feature] >= 0 || taken.has(other))
            continue;
        partner[feature] = other;
        taken.add(other);
    }
    const isNear = new Set(near.map(([feature]) => feature));
    const rows = Uint32Array.from(partner.keys()).filter((row) => partner[row] >= 0 || !isNear.has(row));
    const answered = new Uint32Array(rows.length * m);
    rows.forEach((row, i) => {
        const [source, from] = partner[row] >= 0 ? [earlier.ids, partner[row]] : [ids, row];
        answered.set(source.subarray(from * m, from * m + m), i * m);
    });
    return { ids: answered, rows, isNew: Array.from(rows, (row) => partner[row] < 0) };
}
/** Pairs of rows whose sketches may be of one feature: those that differ least first, then by their rows. */
function nearPairs(left, right) {
    const mine = Uint32Array.from(wordsOf(left)), theirs = wordsOf(right), limit = mostBits(SAME);
    const words = SKETCH_BYTES / 4, features = mine.length / words, others = theirs.length / words;
    const keys = []; // bits, row and other row in one number
    for (let feature = 0; feature < features; feature++) {
        for (let other = 0; other < others; other++) {
            let bits = 0;
            for (let i = feature * words, j = other * words; bits <= limit && i < (feature + 1) * words; i++, j++) {
                bits += ones(mine[i] ^ theirs[j]);
            }
            if (bits <= limit)
                keys.push((bits * features + feature) * others + other);
        }
    }
    return Array.from(Float64Array.from(keys).sort(), (key) => [Math.floor(key / others) % features, key % others]);
}
/** Bytes as 32-bit words. */
function wordsOf(bytes) {
    return new Uint32Array(bytes.slice().buffer);
}
/** Number of ones among 32 bits. */
function ones(bits) {
    let sum = bits - ((bits >>> 1) & 0x55555555);
    sum = (sum & 0x33333333) + ((sum >>> 2) & 0x33333333);
    return Math.imul((sum + (sum >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}
