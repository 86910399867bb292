/**
 * Digests, at once: WebCrypto's are asynchronous, and missing on pages that are not served over TLS.
 *
 * A file of its own: the one door to `@noble/hashes`, whose modules a browser's copy holds beside it (`build.mjs`).
 */
import { blake2b as digest } from "./digests/blake2.js";
import { shake256 as stream } from "./digests/sha3.js";
export { sha256 } from "./digests/sha2.js";
/** A BLAKE2b digest (RFC 7693) of bytes as they come: `update` takes in more, `digest` ends it. Throws for sizes it lacks. */
export function begunBlake2b({ size = 64, key, person } = {}) {
    const personalization = new Uint8Array(16);
    personalization.set(person ?? []);
    return digest.create({ dkLen: size, personalization, ...(key === undefined ? {} : { key }) });
}
/** The BLAKE2b digest of some bytes. */
export function blake2b(bytes, options = {}) {
    return begunBlake2b(options).update(bytes).digest();
}
/** The first `length` bytes of the SHAKE-256 stream (FIPS 202) of some bytes. */
export function shake256(bytes, length) {
    return stream(bytes, { dkLen: length });
}
