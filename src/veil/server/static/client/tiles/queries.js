/** Encrypted queries to one server, and the secrets that decode their answers, once. */
import { fromHex, viewOf } from "../bytes.js";
import { InputError, WireError } from "../errors.js";
/** Deviation of the noise, and the middle of bytes, which are counted from there: so noise is the least. */
export const SIGMA = 6.4, CENTER = 128;
/** Deviations that the noise in no byte of a record exceeds, but with probability 2^-40 (docs/theory/pir.md, Eq. 8). */
export function noiseTail(size) {
    return Math.sqrt(2 * Math.log(2 * size * 2 ** 40));
}
/** What a server names of an exit. Raises WireError for parts of a record, or a seed of 32 bytes, that are none. */
export function partsAndSeed(said, size) {
    const { parts, seed } = said;
    if (typeof seed !== "string" || !/^[0-9a-f]{64}$/.test(seed))
        throw damaged("its seed is none");
    if (typeof parts !== "number" || !Number.isInteger(parts) || parts < 1 || parts > size)
        throw damaged("its parts are none");
    return { parts, seed: fromHex(seed) };
}
/** The error for facts of an exit that no device should use. */
export function damaged(why) {
    return new WireError(`what the server says of its exit is damaged (${why}); ask whoever serves it, or take another exit`);
}
/**
 * Queries for some records, and the keys that decode the answers.
 *
 * Two queries under one secret would tell the server the difference of what they ask for. So secrets are drawn where queries are
 * made, no query is made from them again, and they decode once.
 */
export class Queries {
    /** The queries, one after the other. */
    bytes;
    #scheme;
    #keys;
    /** Raises InputError for no index and for one that is not there. */
    constructor(indices, scheme) {
        const { records, parts, queryBytes } = scheme.layout;
        if (!indices.length || !indices.every((index) => Number.isInteger(index) && index >= 0 && index < records)) {
            throw new InputError(`indices must be one or more from 0 to ${records - 1}, got [${indices.join(", ")}]`);
        }
        const columns = indices.flatMap((index) => Array.from({ length: parts }, (_, part) => index * parts + part));
        this.bytes = new Uint8Array(columns.length * queryBytes);
        this.#scheme = scheme;
        this.#keys = scheme.encrypted(columns, columns.map((_, at) => viewOf(piece(this.bytes, at, queryBytes))));
    }
    /**
     * The records that were asked for. It uses up the secrets.
     *
     * Raises WireError for answers of another length, and InputError if it was called before. A server that lies gives other
     * bytes: check them.
     */
    decode(answers) {
        const keys = this.#keys, { size, parts, rows, answerBytes } = this.#scheme.layout;
        if (!keys.length)
            throw new InputError("these answers were decoded already, and secrets are used once; make new queries");
        if (answers.length !== keys.length * answerBytes) {
            throw new WireError(`${keys.length} answers of ${answerBytes} bytes were due, got ${answers.length} bytes; fetch again`);
        }
        this.#keys = [];
        const bytes = new Uint8Array(keys.length * rows);
        keys.forEach((key, at) => this.#scheme.opened(viewOf(piece(answers, at, answerBytes)), key, piece(bytes, at, rows)));
        return Array.from({ length: keys.length / parts }, (_, at) => piece(bytes, at, parts * rows).slice(0, size));
    }
}
/** The piece of bytes with a number, of pieces of one size. */
export function piece(bytes, number, size) {
    return bytes.subarray(number * size, (number + 1) * size);
}
