/**
 * Digests, at once: WebCrypto's are asynchronous, and missing on pages that are not served over TLS.
 *
 * A file of its own: the one door to `@noble/hashes`, whose modules a browser's copy holds beside it (`build.mjs`).
 */

import { blake2b as digest } from "@noble/hashes/blake2.js";
import { shake256 as stream } from "@noble/hashes/sha3.js";

export { sha256 } from "@noble/hashes/sha2.js";

/** What a digest is made with: `size` in bytes (1 to 64), a key of at most 64 bytes, a personalization of at most 16. */
export interface Blake2bOptions {
  size?: number;
  key?: Uint8Array;
  person?: Uint8Array;
}

/** A BLAKE2b digest (RFC 7693) of bytes as they come: `update` takes in more, `digest` ends it. Throws for sizes it lacks. */
export function begunBlake2b({ size = 64, key, person }: Blake2bOptions = {}) {
  const personalization = new Uint8Array(16);
  personalization.set(person ?? []);
  return digest.create({ dkLen: size, personalization, ...(key === undefined ? {} : { key }) });
}

/** The BLAKE2b digest of some bytes. */
export function blake2b(bytes: Uint8Array, options: Blake2bOptions = {}): Uint8Array {
  return begunBlake2b(options).update(bytes).digest();
}

/** The first `length` bytes of the SHAKE-256 stream (FIPS 202) of some bytes. */
export function shake256(bytes: Uint8Array, length: number): Uint8Array {
  return stream(bytes, { dkLen: length });
}
