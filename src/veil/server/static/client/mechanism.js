/** The subset mechanism: its law in exact numbers (docs/theory/words.md, Eq. 1-6; Pittaluga and Zhuang 2023, Sec. 5). */
import { InputError } from "./errors.js";
import { scaledExponential } from "./exponential.js";
import { general, shortest } from "./numbers.js";
/** e^epsilon is rounded down to a multiple of 1 / SCALE, so that every ratio of probabilities is at most e^epsilon. */
export const SCALE = 1n << 64n;
/**
 * Law of random subsets of words in place of a feature's true word, with local differential privacy of each feature.
 *
 * An infinite epsilon sends the true word for certain, which is no privacy at all.
 */
export class SubsetMechanism {
    dictionarySize;
    epsilon;
    m;
    /** Probability that the true word is sent, exactly (docs/theory/words.md, Eq. 5). */
    truth;
    /** Raises InputError for parameters outside their range, and if the probability of sending the true word rounds to 1. */
    constructor({ dictionarySize, epsilon, m }) {
        if (!Number.isInteger(dictionarySize) || dictionarySize < 2) {
            throw new InputError(`words must be at least 2, got ${dictionarySize}; a single word says nothing`);
        }
        if (!Number.isInteger(m) || m < 1 || m >= dictionarySize) {
            throw new InputError(`m must be between 1 and words - 1 = ${dictionarySize - 1}, got ${m}`);
        }
        if (!(epsilon >= 0)) {
            throw new InputError(`epsilon must be >= 0, got ${shortest(epsilon)}; infinity sends the nearest word for certain`);
        }
        [this.dictionarySize, this.epsilon, this.m] = [dictionarySize, epsilon, m];
        const logOdds = Math.log(m) + epsilon - Math.log(dictionarySize - m);
        // Log-odds first: the exact e^epsilon of a large epsilon has too many digits to be computed.
        const isCertain = Number.isFinite(epsilon) && (logOdds > 40 || this.roundsToOne());
        if (isCertain) {
            throw new InputError(`with epsilon=${general(epsilon)}, m=${m} and ${dictionarySize} words the true word is sent with a probability that ` +
                "rounds to 1; use a smaller epsilon, or infinity if no privacy is wanted");
        }
        this.truth = this.exactTruth();
    }
    /** e^epsilon rounded down to a multiple of 2^-64, times 2^64; epsilon must be finite. */
    get scaledOdds() {
        return scaledExponential(this.epsilon);
    }
    /** Probability that a given word of a sent subset is the true one, if all words were equally likely before. */
    get posterior() {
        return asNumber(this.truth) / this.m;
    }
    /** Probabilities that the privacy loss is +epsilon, and that it is -epsilon; else it is 0 (docs/theory/words.md, Eq. 7). */
    get loss() {
        const { numerator, denominator } = this.truth;
        const others = BigInt(this.dictionarySize - 1), m = BigInt(this.m);
        return {
            ahead: { numerator: numerator * (others - m + 1n), denominator: denominator * others },
            behind: { numerator: (denominator - numerator) * m, denominator: denominator * others },
        };
    }
    exactTruth() {
        if (!Number.isFinite(this.epsilon))
            return { numerator: 1n, denominator: 1n };
        const ahead = BigInt(this.m) * this.scaledOdds;
        return { numerator: ahead, denominator: ahead + BigInt(this.dictionarySize - this.m) * SCALE };
    }
    /** Whether the nearest double of `truth` is 1: it is 2^-54 below 1 at most (a tie goes to the even one, which is 1). */
    roundsToOne() {
        const { numerator, denominator } = this.exactTruth();
        return (denominator - numerator) << 54n <= denominator;
    }
}
/** The double next to a fraction, up to a relative error of 2^-52. */
export function asNumber({ numerator, denominator }) {
    if (numerator === 0n)
        return 0;
    const shift = BigInt(Math.max(0, 64 + denominator.toString(2).length - numerator.toString(2).length));
    return Number((numerator << shift) / denominator) / 2 ** Number(shift);
}
