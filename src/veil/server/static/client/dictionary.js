/** Dictionaries: public words that descriptors are replaced by under an epsilon, identified by their hash. */
import { InputError } from "./errors.js";
import { nearestOfFloats, nearestOfIntegers } from "./nearest.js";
/** K words of one kind of descriptor. */
export class Dictionary {
    descriptor;
    normalization;
    dim;
    stored;
    digest;
    #imageDigests;
    /** Raises InputError for fewer than two words, words that are zero or not finite, or a digest that is no SHA-256. */
    constructor(facts) {
        const { stored, dim } = facts;
        if (!Number.isInteger(dim) || dim < 2 || stored.length % dim !== 0 || stored.length < 2 * dim) {
            throw new InputError(`a dictionary needs at least two words of the same dimension, got ${stored.length} / ${dim}`);
        }
        for (let at = 0; at < stored.length; at += dim) {
            const word = stored.subarray(at, at + dim);
            if (!word.every(Number.isFinite) || word.every((value) => value === 0)) {
                throw new InputError(`word ${at / dim} of the dictionary is zero or not finite; get the file again`);
            }
        }
        if (!/^[0-9a-f]{64}$/.test(facts.digest))
            throw new InputError("the dictionary's digest must be a SHA-256 in hex");
        [this.descriptor, this.normalization, this.dim] = [facts.descriptor, facts.normalization, dim];
        [this.stored, this.digest] = [stored, facts.digest];
        this.#imageDigests = new Set(facts.imageDigests ?? []);
    }
    /** Number K of words. */
    get size() {
        return this.stored.length / this.dim;
    }
    /** Whether the photograph with this digest (hex) is one of those that the words were made from. */
    wasMadeFrom(imageDigest) {
        return this.#imageDigests.has(imageDigest.slice(0, 16));
    }
    /**
     * The word nearest to each 8-bit descriptor, and the distance to it.
     *
     * The search is exact and the same on every machine: 8-bit words are compared in whole numbers, others in doubles that are
     * added in order. A search that depended on the machine would release the same photograph differently.
     */
    nearest(descriptors) {
        if (descriptors.length % this.dim !== 0) {
            throw new InputError(`descriptors must have ${this.dim} values each, got ${descriptors.length} in all`);
        }
        return this.stored instanceof Uint8Array
            ? nearestOfIntegers(descriptors, this.stored, this.dim)
            : nearestOfFloats(descriptors, this.stored, this.dim);
    }
}
