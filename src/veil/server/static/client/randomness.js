/**
 * Draws keyed by a client's secret, the same ones that Python's veil makes (docs/theory/release.md, Eq. 3).
 *
 * A draw depends on the key and on its context, never on what was drawn before: keyed BLAKE2b gives a seed, SHAKE-256 a stream.
 * With a key that the client keeps, this is the memoized release: the same feature is released the same way, however often.
 */
import { concatenated, hex, utf8 } from "./bytes.js";
import { blake2b } from "./digests.js";
import { shake256 } from "./digests.js";
import { InputError, ReleaseRefused, needed } from "./errors.js";
export const KEY_BYTES = 32;
const WORD = 1n << 64n;
/** A secret of a client; whoever holds it can undo the memoized choices, so it stays on the device. */
export class Secret {
    #key;
    /** Raises InputError for a key that has not 32 bytes. */
    constructor(key) {
        if (key.length !== KEY_BYTES)
            throw new InputError(`a client secret has ${KEY_BYTES} bytes, got ${key.length}`);
        this.#key = key.slice();
    }
    /** Eight hex digits that tell secrets apart in the ledger and say nothing about the key. */
    get fingerprint() {
        return hex(blake2b(utf8("fingerprint"), { key: this.#key, size: 4 }));
    }
    /** The name under which an image is released: 16 hex digits that only the holder of the secret can link to it. */
    pseudonym(imageDigest) {
        return hex(blake2b(concatenated(utf8("name|"), imageDigest), { key: this.#key, size: 8 }));
    }
    /** A digest of bytes that only who has the key can make, for one purpose, which `person` names in 16 letters at most. */
    keyed(person, bytes, size) {
        return blake2b(bytes, { key: this.#key, size, person: utf8(person) });
    }
    bits64(context, count) {
        const stream = shake256(blake2b(context, { key: this.#key, size: 64 }), 8 * count);
        const view = new DataView(stream.buffer);
        return BigUint64Array.from({ length: count }, (_, i) => view.getBigUint64(8 * i, true));
    }
}
/** The bytes of a new secret, from the system's generator. Raises ReleaseRefused if it fails: nothing weaker is used. */
export function entropy() {
    const generator = needed(globalThis.crypto, "crypto");
    try {
        return generator.getRandomValues(new Uint8Array(KEY_BYTES));
    }
    catch (error) {
        throw new ReleaseRefused(`the system gave no randomness (${String(error)}); nothing was released, try again`);
    }
}
/**
 * True with exactly the probability that a rational number says.
 *
 * A uniform real is drawn 64 binary digits at a time and compared with it until they differ, mostly at once. Where the digits
 * of the probability end, an equal real is not below it.
 */
export function bernoulli(randomness, context, probability) {
    const { numerator, denominator } = probability;
    if (numerator < 0n || numerator > denominator || denominator <= 0n)
        throw new InputError("a probability must lie in [0, 1]");
    if (numerator === denominator)
        return true;
    let rest = numerator;
    for (let round = 0;; round++) {
        const digit = (rest * WORD) / denominator;
        rest = (rest * WORD) % denominator;
        const bits = randomness.bits64(concatenated(utf8(`digit ${round}|`), context), 1)[0];
        if (bits !== digit)
            return bits < digit;
        if (rest === 0n)
            return false;
    }
}
/** One integer for each of `bounds`, exactly uniform in 0..bound-1: remainders of 64 bits, drawn again where biased. */
export function integersBelow(randomness, context, bounds) {
    const divisors = bounds.map(BigInt);
    const last = divisors.map((bound) => WORD - 1n - (WORD % bound));
    const bits = [...randomness.bits64(context, bounds.length)];
    for (let round = 1; bits.some((value, i) => value > last[i]); round++) {
        const again = randomness.bits64(concatenated(utf8(`again ${round}|`), context), bounds.length);
        bits.forEach((value, i) => (bits[i] = value > last[i] ? again[i] : value));
    }
    return bits.map((value, i) => Number(value % divisors[i]));
}
/** `size` distinct integers in 0..bound-1, all sets exactly equally likely (Floyd's sampling); their order is not uniform. */
export function subsetBelow(randomness, context, bound, size) {
    if (!(size >= 0 && size <= bound))
        throw new InputError(`cannot draw ${size} distinct integers below ${bound}`);
    if (size === 0)
        return [];
    const tops = Array.from({ length: size }, (_, i) => bound - size + i);
    const candidates = integersBelow(randomness, context, tops.map((top) => top + 1));
    const chosen = new Set();
    candidates.forEach((candidate, i) => chosen.add(chosen.has(candidate) ? tops[i] : candidate));
    return [...chosen];
}
/** Standard normal numbers, by inversion of uniform ones in (0, 1), which are made of the 52 upper bits. */
export function gaussian(bits) {
    return Float64Array.from(bits, (word) => normalQuantile((Number(word >> 12n) + 0.5) * 2 ** -52));
}
// Coefficients of AS 241, the highest power first: numerator and denominator near the middle, beside it, and in the tails.
const MIDDLE = [
    [2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125,
        1971.5909503065514427, 133.14166789178437745, 3.387132872796366608],
    [5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077,
        687.1870074920579083, 42.313330701600911252, 1],
];
const BESIDE = [
    [7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
        3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734],
    [1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
        0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1],
];
const TAILS = [
    [2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
        0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772],
    [2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
        0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1],
];
/** The number that a standard normal one is below with probability `p`, to 16 digits (Wichura 1988, Algorithm AS 241). */
export function normalQuantile(p) {
    const ratio = (of, at) => {
        const [above, below] = of.map((coefficients) => coefficients.reduce((sum, value) => sum * at + value, 0));
        return above / below;
    };
    const q = p - 0.5;
    if (Math.abs(q) <= 0.425)
        return q * ratio(MIDDLE, 0.180625 - q * q);
    const r = Math.sqrt(-Math.log(Math.min(p, 1 - p)));
    return Math.sign(q) * (r <= 5 ? ratio(BESIDE, r - 1.6) : ratio(TAILS, r - 5));
}
