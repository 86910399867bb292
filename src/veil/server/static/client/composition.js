/** Exact composition of the subset mechanism's privacy loss, rounded outward (docs/theory/words.md#composition, Eq. 7-8). */
import { InputError } from "./errors.js";
import { SubsetMechanism, asNumber } from "./mechanism.js";
import { asFraction, general, nextUp } from "./numbers.js";
/** Mass that is cut off at each side of the walk at each convolution; delta counts all of it. */
const TAIL = 1e-30;
const UNIT_ROUNDOFF = 2 ** -53;
/**
 * Epsilon at `delta` of all features together; never below the exact one.
 *
 * One mechanism is composed exactly. Several share delta equally and their epsilons add, which is an upper bound. The basic
 * composition is taken where it is less. Infinite epsilons give infinity.
 */
export function composedEpsilon(charges, delta) {
    if (!(delta > 0 && delta < 1))
        throw new InputError(`delta must lie between 0 and 1, got ${general(delta)}; 1e-6 is usual`);
    const sums = summed(charges);
    if (sums.some(({ mechanism }) => !Number.isFinite(mechanism.epsilon)))
        return Infinity;
    if (sums.length === 0)
        return 0;
    const share = delta / sums.length;
    let exact = 0;
    for (const { mechanism, features } of sums)
        exact += epsilonAt(privacyLoss(mechanism, features), share);
    // Sums of doubles are off by one rounding for each term.
    if (sums.length > 1)
        exact *= 1 + sums.length * 2 * UNIT_ROUNDOFF;
    return Math.min(exact, basicEpsilon(charges));
}
/** Sum of the epsilons of all features, which holds with delta = 0; rounded up. */
export function basicEpsilon(charges) {
    const sums = summed(charges);
    if (sums.some(({ mechanism }) => !Number.isFinite(mechanism.epsilon)))
        return Infinity;
    const SHIFT = 1100n;
    let total = 0n;
    for (const { mechanism, features } of sums) {
        const { numerator, shift } = asFraction(mechanism.epsilon);
        total += (numerator << (SHIFT - shift)) * BigInt(features);
    }
    if (total === 0n)
        return 0;
    const nearest = asNumber({ numerator: total, denominator: 1n << SHIFT });
    const found = asFraction(nearest);
    return found.numerator << (SHIFT - found.shift) >= total ? nearest : nextUp(nearest);
}
/** Charges with the draws of equal mechanisms added up. */
function summed(charges) {
    const sums = new Map();
    for (const { mechanism, features } of charges) {
        if (features <= 0)
            continue;
        const key = `${mechanism.dictionarySize} ${mechanism.epsilon} ${mechanism.m}`;
        sums.set(key, { mechanism, features: features + (sums.get(key)?.features ?? 0) });
    }
    return [...sums.values()];
}
/** Privacy loss of `features` draws of the mechanism together. */
function privacyLoss(mechanism, features) {
    const { ahead, behind } = mechanism.loss;
    const { denominator } = ahead;
    const still = { numerator: denominator - ahead.numerator - behind.numerator, denominator };
    const mass = Float64Array.of(asNumber(behind), asNumber(still), asNumber(ahead));
    const one = { step: mechanism.epsilon, low: -1, mass, lost: 0, rounding: 2 * UNIT_ROUNDOFF };
    let total = one;
    // Square and multiply, from the highest binary digit down.
    for (const digit of features.toString(2).slice(1)) {
        total = added(total, total);
        if (digit === "1")
            total = added(total, one);
    }
    return total;
}
/** Privacy loss of both together; what is cut off below moves up, and what is cut off above counts as lost. */
function added(a, b) {
    const mass = new Float64Array(a.mass.length + b.mass.length - 1);
    a.mass.forEach((x, i) => {
        for (let j = 0; j < b.mass.length; j++)
            mass[i + j] += x * b.mass[j];
    });
    let upper = mass.length, above = 0;
    while (upper > 1 && above + mass[upper - 1] < TAIL)
        above += mass[--upper];
    let lower = 0, below = 0;
    while (lower < upper - 1 && below + mass[lower] < TAIL)
        below += mass[lower++];
    const kept = mass.slice(lower, upper);
    kept[0] += below;
    const terms = Math.min(a.mass.length, b.mass.length) + 2;
    const rounding = a.rounding + b.rounding + terms * UNIT_ROUNDOFF;
    const lost = a.lost + b.lost + above * (1 + rounding);
    return { step: a.step, low: a.low + b.low + lower, mass: kept, lost, rounding };
}
/** Upper bound of the least delta with which `epsilon` holds (docs/theory/words.md, Eq. 8). */
function deltaAt(loss, epsilon) {
    let excess = 0, terms = 0;
    loss.mass.forEach((mass, i) => {
        const value = loss.step * (loss.low + i);
        if (!(value > epsilon))
            return;
        excess += mass * -Math.expm1(epsilon - value);
        terms++;
    });
    // One more rounding for each operation on a term, and one for each term of the sum.
    return Math.min(1, excess * (1 + loss.rounding + (terms + 8) * UNIT_ROUNDOFF) + loss.lost);
}
/** Least epsilon with which `delta` suffices, never below the exact one. */
function epsilonAt(loss, delta) {
    if (loss.lost >= delta) {
        throw new InputError(`delta=${general(delta)} is below what this computation resolves (${general(loss.lost, 1)}); use a larger delta`);
    }
    const last = loss.low + loss.mass.length;
    let low = 0, high = Math.max(0, loss.step * (last - 1));
    if (deltaAt(loss, 0) <= delta)
        return 0;
    while (high - low > 1e-10 * high) {
        const middle = (low + high) / 2;
        if (deltaAt(loss, middle) <= delta)
            high = middle;
        else
            low = middle;
    }
    // Rounded losses move the epsilon that satisfies delta by as much as they were rounded.
    const largest = loss.step * Math.max(Math.abs(loss.low), last);
    return high * (1 + 1e-12) + 4 * (nextUp(largest) - largest);
}
