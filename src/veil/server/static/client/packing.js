/** Packing of sets of word ids into bits, close to their entropy (docs/reference/wire.md, "Word ids"). */
import { WireError } from "./errors.js";
/** Number of bits of a remainder, in whole numbers, so that it is the same on every machine. */
export function riceWidth(dictionarySize, m) {
    const above = 4812 * (2 * dictionarySize - m + 1), below = 20000 * (m + 1);
    const mean = (above - (above % below)) / below;
    return mean === 0 ? 0 : mean.toString(2).length;
}
/** Least and largest number of bytes that `packed` may return. */
export function packedSizes({ features, m, dictionarySize }) {
    const width = riceWidth(dictionarySize, m), count = features * m;
    // The values of a feature sum to at most K - m, and its quotients to at most that over 2^width.
    const longest = count + features * Math.floor((dictionarySize - m) / 2 ** width);
    const fixed = Math.ceil((count * width) / 8);
    return { least: fixed + Math.ceil(count / 8), most: fixed + Math.ceil(longest / 8) };
}
/** Word ids packed into bits; the `m` ids of each feature must ascend and stay below `dictionarySize`. */
export function packed(ids, { features, m, dictionarySize }) {
    const width = riceWidth(dictionarySize, m), step = 2 ** width;
    const values = ids.map((id, i) => (i % m === 0 ? id : id - ids[i - 1] - 1));
    const fixed = Math.ceil((features * m * width) / 8);
    const quotientBits = values.reduce((sum, value) => sum + Math.floor(value / step) + 1, 0);
    const out = new Uint8Array(fixed + Math.ceil(quotientBits / 8));
    let kept = 0, bits = 0, at = 0; // bits that do not fill a byte yet
    for (const value of values) {
        kept += (value % step) * 2 ** bits;
        for (bits += width; bits >= 8; bits -= 8) {
            out[at++] = kept % 256;
            kept = Math.floor(kept / 256);
        }
    }
    if (bits > 0)
        out[at] = kept;
    let bit = 8 * fixed - 1;
    for (const value of values) {
        bit += Math.floor(value / step) + 1;
        out[bit >> 3] |= 1 << (bit & 7);
    }
    return out;
}
/** Word ids that `packed` made `data` from. Raises WireError for bytes that it would not have written. */
export function unpacked(data, shape) {
    const { features, m, dictionarySize } = shape;
    const width = riceWidth(dictionarySize, m), count = features * m;
    const { least, most } = packedSizes(shape);
    if (data.length < least || data.length > most) {
        throw new WireError(`${data.length} bytes cannot hold ${features} sets of ${m} out of ${dictionarySize} words`);
    }
    const fixed = Math.ceil((count * width) / 8);
    const values = remainders(data.subarray(0, fixed), count, width);
    addQuotients(values, data.subarray(fixed), width, dictionarySize);
    for (let row = 0; row < count; row += m) {
        let id = values[row];
        for (let i = row + 1; i < row + m; i++) {
            id += values[i] + 1;
            values[i] = id;
        }
        if (id >= dictionarySize)
            throw outside(dictionarySize);
    }
    return values;
}
function outside(dictionarySize) {
    return new WireError(`a word id lies outside the dictionary of ${dictionarySize} words`);
}
/** Values of `count` remainders of `width` bits each. Raises WireError if padding bits are set. */
function remainders(data, count, width) {
    const values = new Uint32Array(count);
    let kept = 0, bits = 0, at = 0;
    const step = 2 ** width;
    for (let i = 0; i < count; i++) {
        for (; bits < width; bits += 8)
            kept += data[at++] * 2 ** bits;
        values[i] = kept % step;
        kept = Math.floor(kept / step);
        bits -= width;
    }
    if (kept !== 0)
        throw new WireError("bits are set behind the last remainder");
    return values;
}
/** Add the quotients, times 2^`width`, to `values`; a quotient is as many zeros, then a one. */
function addQuotients(values, data, width, dictionarySize) {
    const step = 2 ** width;
    let done = 0, last = -1;
    for (let bit = 0; bit < 8 * data.length; bit++) {
        if (((data[bit >> 3] >> (bit & 7)) & 1) === 0)
            continue;
        if (done === values.length)
            throw ends(values.length);
        const value = (bit - last - 1) * step + values[done];
        if (value >= dictionarySize)
            throw outside(dictionarySize);
        values[done++] = value;
        last = bit;
    }
    if (done !== values.length || last >> 3 !== data.length - 1)
        throw ends(values.length);
}
function ends(count) {
    return new WireError(`the packed words end elsewhere than after ${count} ids`);
}
