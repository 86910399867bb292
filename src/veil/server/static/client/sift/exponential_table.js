/** e^-x from a table with linear interpolation, as VLFeat has it: at most 1.2e-3 off, and several times as fast as Math.exp. */
const SIZE = 256;
const MOST = 25;
const table = Float64Array.from({ length: SIZE + 2 }, (_, at) => Math.exp((-at * MOST) / SIZE));
/** e^-x for x from 0 on, and 0 beyond 25. */
export function expOfMinus(x) {
    if (!(x < MOST)) {
        return 0;
    }
    const place = x * (SIZE / MOST), at = place | 0, low = table[at];
    return low + (place - at) * (table[at + 1] - low);
}
