/**
 * Discrete Gaussian noise of deviation 6.4, sampled exactly from the platform's generator (docs/theory/pir.md#exact-noise).
 *
 * A uniform real U is drawn as a binary fraction. The sample is the least x with U < F(x), for the distribution function F. The
 * first 32 digits leave a cell for U, which mostly holds no F(x): a sorted search decides. Where it holds one, more digits and
 * closer bounds on F, in integers, decide.
 */
import { viewOf } from "../bytes.js";
import { randomBytes } from "./uniform.js";
// Weights are e^(-RATE x^2) for the rate 25 / 2048. Bounds on F have GUARD more binary digits than U.
const RATE = [25n, 2048n], GUARD = 64n, DIGITS = 32n, MORE = 64n;
/** Independent integers with probabilities proportional to e^(-x^2 / (2 6.4^2)), exactly. */
export function noise(count) {
    const { reach, first, last } = cells(), drawn = viewOf(randomBytes(4 * count));
    return Int32Array.from({ length: count }, (_, at) => {
        const cell = drawn.getUint32(4 * at, true);
        let below = 0, end = last.length; // how many F(x) surely lie below the cell
        while (below < end) {
            const middle = (below + end) >> 1;
            if (last[middle] < cell)
                below = middle + 1;
            else
                end = middle;
        }
        const isDecided = below > 0 && below < last.length && first[below] > cell;
        return isDecided ? below - reach : decided(BigInt(cell));
    });
}
/** The sample for a U in a cell of 32 digits, with further digits drawn as they are needed. */
function decided(cell) {
    for (let digits = DIGITS;; digits += MORE) {
        const { reach, bounds } = distribution(digits + GUARD);
        const at = bounds.findIndex(([, high]) => high > cell << GUARD);
        if (at > 0 && (cell + 1n) << GUARD <= bounds[at][0])
            return at - reach;
        cell = (cell << MORE) | viewOf(randomBytes(8)).getBigUint64(0, true);
    }
}
let kept;
/** The cells of 32 digits that hold the bounds on each F(x). */
function cells() {
    if (kept === undefined) {
        const { reach, bounds } = distribution(DIGITS + GUARD), top = (1n << DIGITS) - 1n;
        const cell = (bound) => Number(bound >> GUARD > top ? top : bound >> GUARD);
        const first = Uint32Array.from(bounds, ([low]) => cell(low)), last = Uint32Array.from(bounds, ([, high]) => cell(high));
        kept = { reach, first, last };
    }
    return kept;
}
/** Bounds on F in units of 2^-digits, as far out as the weights are larger than that. */
function distribution(digits) {
    const half = weights(digits + 32n), reach = half.length - 1;
    // Beyond 28 each weight is below half of the one before, so that all weights beyond `reach` sum to less than its own.
    const tail = half[reach][1], sums = [];
    let low = 0n, high = tail;
    for (let x = -reach; x < reach; x++) {
        const weight = half[Math.abs(x)];
        sums.push([(low += weight[0]), (high += weight[1])]);
    }
    const total = [low, high + 2n * tail];
    return { reach, bounds: sums.map((sum) => [(sum[0] << digits) / total[1], ceiling(sum[1] << digits, total[0])]) };
}
/** Bounds on e^(-RATE x^2) 2^shift for x = 0, 1, ... until they fall below 2^32. */
function weights(shift) {
    const one = 1n << shift, times = ([a, b], [c, d]) => [(a * c) >> shift, ceiling(b * d, one)];
    const out = [[one, one]], first = ratio(shift), step = times(first, first);
    for (let factor = first; out.at(-1)[1] >> 32n || out.length <= 28; factor = times(factor, step)) {
        out.push(times(out.at(-1), factor));
    }
    return out;
}
/** Bounds on e^-RATE 2^shift: after a term with a plus sign the sum lies above, by the next term at most. */
function ratio(shift) {
    let term = [1n << shift, 1n << shift], [low, high] = term;
    for (let order = 1n; order % 2n === 0n || term[1] > 1n; order++) {
        const divisor = RATE[1] * order;
        term = [(term[0] * RATE[0]) / divisor, ceiling(term[1] * RATE[0], divisor)];
        if (order % 2n)
            [low, high] = [low - term[1], high - term[0]];
        else
            [low, high] = [low + term[0], high + term[1]];
    }
    return [low - 1n, high + 1n];
}
/** The quotient of positive integers, rounded up. */
function ceiling(above, below) {
    return (above + below - 1n) / below;
}
