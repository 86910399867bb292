/**
 * The device's side of private retrieval from one server without a hint (docs/theory/pir.md, Eq. 13-20).
 *
 * Queries are encrypted by ring learning with errors, and bring the keys with which the server packs its answers.
 */
import { noise } from "./noise.js";
import { CENTER, SIGMA, damaged, noiseTail, partsAndSeed } from "./queries.js";
import { DEGREE, MODULUS, automorphism, expanded, multiplied, residue, ternary, transformed } from "./ring.js";
const STEP = (MODULUS - 1) / 256;
// Digits of the numbers that keys multiply, bits of a digit and below all digits; bits of a word that are public.
const DIGITS = 5, DIGIT_BITS = 5, DROPPED_BITS = 6, KEYS = 2 * DIGITS, PUBLIC_BITS = 18, UNIT = 1 << PUBLIC_BITS;
/** The layout of records of `size` bytes in `parts` columns each. Raises WireError for more columns than are decoded. */
export function hintlessLayout(records, size, parts) {
    const rows = Math.ceil(size / parts), columns = records * parts, most = mostColumns(size);
    if (columns > most)
        throw damaged(`it has ${columns} columns, of which ${most} can be decoded`);
    const queryBytes = 4 * (columns + KEYS * DEGREE), answerBytes = 4 * DEGREE * Math.ceil(rows / DEGREE);
    return { records, size, parts, rows, columns, queryBytes, answerBytes };
}
/** The most columns with which records of `size` bytes are decoded (docs/theory/pir.md, Eq. 20). */
export function mostColumns(size) {
    const secret = Math.sqrt((2 / 3) * DEGREE);
    const packing = Math.hypot(DEGREE * Math.sqrt((DIGITS * (4 ** DIGIT_BITS + 2)) / 12) * SIGMA, (Math.sqrt(DEGREE) * 2 ** DROPPED_BITS * secret) / Math.sqrt(12), ((MODULUS / UNIT) * secret) / Math.sqrt(12));
    const bearable = (STEP / 2) * (1 - 2 ** -6 - 2 ** -9);
    return Math.ceil(((bearable / noiseTail(size)) ** 2 - (1.25 * packing) ** 2) / (CENTER * SIGMA) ** 2) - 1;
}
/** The hintless exit of some records. */
export class Hintless {
    layout;
    seed;
    guarantee = "To learn which record a query fetched, the server needs an estimated 2^218 operations (counted as classical core-SVP; " +
        "quantum core-SVP counts 2^197, and the homomorphic encryption standard 2^249; ring learning with errors in degree 2048 " +
        "modulo 2147389441, Gaussian noise (sigma 6.4), ternary secret, also where the server has encryptions of two automorphisms " +
        "of the secret under itself); each server learns how many records were asked for, when and from which network address.";
    #publics;
    constructor(layout, seed) {
        this.layout = layout;
        this.seed = seed;
    }
    /** The exit that a server names for its records. Raises WireError for one that no device should use. */
    static of(said, records, size) {
        const facts = Object(said);
        if (facts.degree !== DEGREE)
            throw damaged(`its degree is not ${DEGREE}`);
        const { parts, seed } = partsAndSeed(facts, size), layout = hintlessLayout(records, size, parts);
        if (facts.query_bytes !== layout.queryBytes || facts.answer_bytes !== layout.answerBytes)
            throw damaged("its sizes are others");
        return new Hintless(layout, seed);
    }
    encrypted(columns, queries) {
        return columns.map((column, at) => this.#encrypted(column, queries[at]));
    }
    /** Write the query for one column (docs/theory/pir.md, Eq. 13 and 16). */
    #encrypted(column, query) {
        const { columns } = this.layout, publics = this.#expanded();
        const s = ternary(), secret = transformed(s.map(residue)), drawn = noise(columns), keyNoise = noise(KEYS * DEGREE);
        publics.columns.forEach((a, block) => {
            const masks = multiplied(a, secret), first = block * DEGREE;
            for (let at = first; at < Math.min(first + DEGREE, columns); at++) {
                query.setUint32(4 * at, residue(masks[at - first] + drawn[at] + (at === column ? STEP : 0)), true);
            }
        });
        const turned = [automorphism(s, 5), automorphism(s, 2 * DEGREE - 1)];
        publics.keys.forEach((w, key) => {
            const masks = multiplied(w, secret), values = turned[Math.floor(key / DIGITS)], first = key * DEGREE;
            const factor = 2 ** (DROPPED_BITS + DIGIT_BITS * (key % DIGITS));
            for (let at = 0; at < DEGREE; at++) {
                const value = masks[at] + keyNoise[first + at] + factor * values[at];
                query.setUint32(4 * (columns + first + at), residue(value), true);
            }
        });
        return { secret, noiseSum: drawn.reduce((sum, value) => sum + value, 0) };
    }
    /** Round as in docs/theory/pir.md, Eq. 18. */
    opened(answer, { secret, noiseSum }, out) {
        const middle = Math.round((UNIT * CENTER * noiseSum) / MODULUS);
        for (let first = 0; first < out.length; first += DEGREE) {
            const words = Uint32Array.from({ length: DEGREE }, (_, at) => answer.getUint32(4 * (first + at), true));
            const masks = multiplied(transformed(Int32Array.from(words, (word) => word & (UNIT - 1))), secret);
            for (let at = 0; at < Math.min(DEGREE, out.length - first); at++) {
                const mask = masks[at] > MODULUS / 2 ? masks[at] - MODULUS : masks[at];
                const value = 16 * (words[at] >>> PUBLIC_BITS) - mask - middle;
                out[first + at] = ((value + UNIT / 512) & (UNIT - 1)) >> (PUBLIC_BITS - 8);
            }
        }
    }
    /** The public polynomials, transformed: expanded at the first query, for all. */
    #expanded() {
        const all = (domain, count) => Array.from({ length: count }, (_, number) => transformed(expanded(domain, this.seed, number)));
        return (this.#publics ??= {
            columns: all("veil pir ring columns 1", Math.ceil(this.layout.columns / DEGREE)),
            keys: all("veil pir ring keys 1", KEYS),
        });
    }
}
