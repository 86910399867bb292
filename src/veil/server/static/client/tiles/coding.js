/** Meaning of a tile's whole numbers: descriptors in levels along principal axes, directions, sizes (veil.tiles.coding). */
import { InputError } from "../errors.js";
/** Sizes are kept in such parts of an octave. */
const SIZE_STEPS = 16;
/** Row of the number that stands at each place of SIFT after its picture was mirrored (veil.codebooks.mirror). */
export const SIFT_MIRRORED = Uint8Array.from({ length: 128 }, (_, place) => {
    const row = place >> 5, column = (place >> 3) & 3, direction = place & 7;
    return 32 * (3 - row) + 8 * column + ((8 - direction) & 7);
});
/** Raise InputError unless features are of the kind that a map's tiles are of. */
export function requireSameSpace(features, coding) {
    const { descriptor, normalization, dim } = coding;
    if (descriptor !== "sift" || dim !== 128) {
        throw new InputError(`the map's descriptors are ${descriptor} of ${dim} numbers, and this client reads SIFT of 128`);
    }
    if (features.normalization !== normalization) {
        throw new InputError(`the features are normalized by ${features.normalization} and the map's by ${normalization}; extract them with that`);
    }
}
/** 8-bit descriptors of unit length in single precision, as raw features are published. */
export function publish(descriptors, dim, order) {
    const out = new Float32Array(descriptors.length);
    for (let start = 0; start < descriptors.length; start += dim) {
        let sum = 0;
        for (let i = start; i < start + dim; i++)
            sum += descriptors[i] * descriptors[i];
        const length = Math.sqrt(sum);
        for (let i = 0; i < dim; i++)
            out[start + i] = descriptors[start + (order === undefined ? i : order[i])] / length;
    }
    return out;
}
/** Rows that are projected at a time, so that each axis is read once for all of them. */
const ROWS = 4;
/** Descriptors of unit length along the principal axes, as tiles are compared with (rows of `axes` numbers). */
export function compressed(unit, coding) {
    const { dim, axes, mean } = coding, count = unit.length / dim, out = new Float32Array(count * axes);
    const centered = new Float64Array(ROWS * dim), principal = Float64Array.from(coding.principal);
    for (let first = 0; first < count; first += ROWS) {
        const rows = Math.min(ROWS, count - first);
        for (let row = 0; row < rows; row++) {
            for (let i = 0; i < dim; i++)
                centered[row * dim + i] = unit[(first + row) * dim + i] - mean[i];
        }
        for (let axis = 0; axis < axes; axis++) {
            let sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
            for (let i = 0, at = axis * dim; i < dim; i++, at++) {
                const weight = principal[at];
                sum0 += weight * centered[i];
                sum1 += weight * centered[dim + i];
                sum2 += weight * centered[2 * dim + i];
                sum3 += weight * centered[3 * dim + i];
            }
            const sums = [sum0, sum1, sum2, sum3];
            for (let row = 0; row < rows; row++)
                out[(first + row) * axes + axis] = sums[row];
        }
    }
    return out;
}
/** Raw features along the principal axes. */
export function compressedFeatures({ descriptors }, coding, order) {
    return compressed(publish(descriptors, coding.dim, order), coding);
}
/** Sizes in pixels and in diagonals of the picture, which `sizes` (two bytes each) keeps. */
export function pixelsAndFrames(sizes, coding) {
    const count = sizes.length / 2, pixels = new Float64Array(count), frames = new Float64Array(count);
    for (let at = 0; at < count; at++) {
        pixels[at] = 2 ** (sizes[2 * at] / SIZE_STEPS) * coding.leastPixels;
        frames[at] = 2 ** (sizes[2 * at + 1] / SIZE_STEPS) * coding.leastFrames;
    }
    return { pixels, frames };
}
/** The unit vectors of places (two bytes each) on an unfolded octahedron (Cigolle et al. 2014, "oct"). */
export function unfolded(places) {
    const count = places.length / 2, out = new Float64Array(3 * count);
    for (let at = 0; at < count; at++) {
        let x = (places[2 * at] / 255) * 2 - 1, y = (places[2 * at + 1] / 255) * 2 - 1;
        const z = 1 - Math.abs(x) - Math.abs(y), below = Math.max(-z, 0);
        x -= x >= 0 ? below : -below;
        y -= y >= 0 ? below : -below;
        const length = Math.sqrt(x * x + y * y + z * z);
        out.set([x / length, y / length, z / length], 3 * at);
    }
    return out;
}
