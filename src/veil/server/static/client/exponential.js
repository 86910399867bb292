/** e^x in integers, so that it is the same on every machine and rounded in a known direction. */
import { asFraction } from "./numbers.js";
/**
 * The whole part of e^x 2^64, exactly, for a finite x >= 0.
 *
 * A lower and an upper bound are computed with more and more bits until both have the same whole part. For x > 0 they meet, as
 * e^x of a rational x is irrational; e^0 is exact.
 */
export function scaledExponential(x) {
    if (x === 0)
        return 1n << 64n;
    for (let bits = 128n;; bits *= 2n) {
        const [low, high] = bounds(x, bits);
        if (low === high)
            return low;
    }
}
/** Whole parts of a lower and an upper bound of e^x 2^64, computed with `bits` bits behind the point. */
function bounds(x, bits) {
    const { numerator, shift } = asFraction(x);
    const halvings = BigInt(Math.max(0, Math.ceil(Math.log2(x)))) + 8n;
    const work = bits + 2n * halvings + 16n;
    // x / 2^halvings < 1/128, rounded down; the series is then squared as often as x was halved.
    const small = ((numerator << work) >> shift) >> halvings;
    let term = 1n << work, sum = term, count = 0n;
    while (term > 0n) {
        count += 1n;
        term = ((term * small) >> work) / count;
        sum += term;
    }
    // Rounded down: x by one unit, each term by two, and what follows the last one is less than a unit.
    let low = sum, high = sum + 3n * count + 8n;
    for (let i = 0n; i < halvings; i++) {
        low = (low * low) >> work;
        high = ((high * high) >> work) + 1n;
    }
    return [low >> (work - 64n), high >> (work - 64n)];
}
