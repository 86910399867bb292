/** Uniform bytes and integers from the platform's generator: what queries for tiles are drawn with. */
import { viewOf } from "../bytes.js";
import { needed } from "../errors.js";
// What crypto.getRandomValues gives at a time.
const MOST_RANDOM = 65_536;
/** Bytes from the platform's generator. Raises RuntimeLacks where there is none: nothing weaker is used. */
export function randomBytes(count) {
    const out = new Uint8Array(count), generator = needed(globalThis.crypto, "crypto");
    for (let at = 0; at < count; at += MOST_RANDOM)
        generator.getRandomValues(out.subarray(at, at + MOST_RANDOM));
    return out;
}
/** A uniformly random integer below `bound`, at most 2^32. */
export function randomBelow(bound) {
    const limit = 2 ** 32 - (2 ** 32 % bound);
    for (;;) {
        const drawn = viewOf(randomBytes(4)).getUint32(0);
        if (drawn < limit)
            return drawn % bound;
    }
}
