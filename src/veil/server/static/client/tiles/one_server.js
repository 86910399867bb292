/** The device's side of private retrieval from one server with a hint, SimplePIR (docs/theory/pir.md, Eq. 3-9). */
import { concatenated, utf8, viewOf } from "../bytes.js";
import { shake256 } from "../digests.js";
import { noise } from "./noise.js";
import { CENTER, SIGMA, damaged, noiseTail, partsAndSeed } from "./queries.js";
import { randomBytes } from "./uniform.js";
const DIMENSION = 1408, STEP = 1 << 24, MOST_SAMPLES = 1 << 21;
const BLOCK = 1024; // rows of the public matrix that are expanded at a time
/** The layout of records of `size` bytes in `parts` columns each. Raises WireError for more columns than are decoded and safe. */
export function oneServerLayout(records, size, parts) {
    const rows = Math.ceil(size / parts), columns = records * parts, most = mostColumns(size);
    if (columns > most)
        throw damaged(`it has ${columns} columns, of which ${most} can be decoded`);
    return { records, size, parts, rows, columns, queryBytes: 4 * columns, answerBytes: 4 * rows };
}
/** The most columns with which records of `size` bytes are decoded and safe (docs/theory/pir.md, Eq. 9). */
export function mostColumns(size) {
    return Math.min(MOST_SAMPLES, Math.ceil((STEP / 2 / (CENTER * SIGMA * noiseTail(size))) ** 2) - 1);
}
/** Bytes of the hint of a layout. */
export function hintBytes(layout) {
    return 4 * DIMENSION * layout.rows;
}
/** The exit by one server of some records, with its hint. All arithmetic is modulo 2^32. */
export class OneServer {
    layout;
    seed;
    guarantee = "To learn which record a query fetched, the server needs an estimated 2^146 operations (counted as classical core-SVP; " +
        "quantum core-SVP counts 2^132, and the homomorphic encryption standard 2^176; learning with errors in dimension 1408 modulo " +
        "2^32, Gaussian noise (sigma 6.4), uniform secret); each server learns how many records were asked for, when and from which " +
        "network address.";
    #hint;
    constructor(layout, seed, hint) {
        this.layout = layout;
        this.seed = seed;
        this.#hint = words(hint);
    }
    /** The facts that a server names, beside its hint. Raises WireError for what no device should use. */
    static facts(said, records, size) {
        const facts = Object(said);
        if (facts.dimension !== DIMENSION)
            throw damaged(`its dimension is not ${DIMENSION}`);
        const { parts, seed } = partsAndSeed(facts, size), layout = oneServerLayout(records, size, parts);
        const isThat = facts.query_bytes === layout.queryBytes && facts.answer_bytes === layout.answerBytes;
        if (!isThat || facts.hint_bytes !== hintBytes(layout))
            throw damaged("its sizes are others");
        return { layout, seed, hintDigest: String(facts.hint_sha256) };
    }
    /** Write queries (docs/theory/pir.md, Eq. 4). The public matrix is expanded once for all, which takes most of the time. */
    encrypted(columns, queries) {
        const secrets = columns.map(() => words(randomBytes(4 * DIMENSION)));
        const drawn = columns.map(() => noise(this.layout.columns));
        for (let first = 0; first < this.layout.columns; first += BLOCK) {
            const block = this.#expanded(first);
            for (let at = first; at < Math.min(first + BLOCK, this.layout.columns); at++) {
                const start = (at - first) * DIMENSION;
                columns.forEach((column, number) => {
                    const value = inner(block, start, secrets[number]) + drawn[number][at] + (at === column ? STEP : 0);
                    queries[number].setInt32(4 * at, value, true);
                });
            }
        }
        return secrets.map((secret, at) => ({ secret, noiseSum: drawn[at].reduce((sum, value) => sum + value, 0) }));
    }
    /** Round as in docs/theory/pir.md, Eq. 5. */
    opened(answer, { secret, noiseSum }, out) {
        for (let row = 0; row < out.length; row++) {
            const value = answer.getInt32(4 * row, true) - inner(this.#hint, row * DIMENSION, secret) - CENTER * noiseSum;
            out[row] = (value + STEP / 2) >>> 24;
        }
    }
    /** Rows of the public matrix, one for each column from `first` on. */
    #expanded(first) {
        const number = new Uint8Array(8), rows = Math.min(BLOCK, this.layout.columns - first);
        viewOf(number).setUint32(0, first / BLOCK, true);
        return words(shake256(concatenated(utf8("veil pir public matrix 2"), this.seed, number), 4 * rows * DIMENSION));
    }
}
/** The inner product of a row that starts at a place, and a secret. */
function inner(rows, start, secret) {
    let sum = 0;
    for (let at = 0; at < DIMENSION; at++)
        sum = (sum + Math.imul(rows[start + at], secret[at])) | 0;
    return sum;
}
/** Bytes as integers of 32 bits, the least byte first. */
function words(bytes) {
    const view = viewOf(bytes), out = new Int32Array(bytes.length / 4);
    for (let at = 0; at < out.length; at++)
        out[at] = view.getInt32(4 * at, true);
    return out;
}
