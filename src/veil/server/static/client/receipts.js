/**
 * Receipts of deletions as a chain of digests: each covers the one before (docs/reference/service.md#receipts).
 *
 * A receipt proves that the server said it, in this order, not that the bytes are gone: a server that lies can keep a copy.
 * Whoever noted the end of the chain earlier sees that nothing before it was rewritten since.
 */
import { hex, utf8 } from "./bytes.js";
import { sha256 } from "./digests.js";
import { WireError } from "./errors.js";
import { memberText } from "./json.js";
const digestOf = (text) => hex(sha256(utf8(text)));
const DIGEST = /^[0-9a-f]{64}$/;
/** The digest before the first receipt. */
export const BEGIN = digestOf("veil receipts 1");
/** Digest of a receipt from those of the receipt before and of its content. */
export function receiptDigest(before, number, content) {
    return digestOf(`veil receipt 1 ${before} ${number} ${content}`);
}
/**
 * The receipt in a text of JSON, exactly as the server sent it: its numbers are digested as they were written.
 *
 * Raises WireError for anything else, or if its digest is not that of its content.
 */
export function receiptOf(text) {
    const content = memberText(text, "content");
    const value = JSON.parse(text);
    if (content === null || !content.startsWith("{")) {
        throw new WireError("this is no receipt: it has no content; give the JSON that a veil server answered");
    }
    const { number, before, digest } = value;
    if (typeof number !== "number" || !Number.isSafeInteger(number) || number < 1 || typeof before !== "string") {
        throw new WireError("this is no receipt: it lacks its number or the digest of the receipt before");
    }
    if (!DIGEST.test(before))
        throw new WireError("this is no receipt: the digest of the receipt before is no SHA-256");
    const contentDigest = digestOf(content), expected = receiptDigest(before, number, contentDigest);
    if (digest !== expected) {
        throw new WireError(`receipt ${number} was changed: its digest is not that of what it says`);
    }
    return { number, content: value.content, contentDigest, before, digest: expected };
}
/**
 * Raise WireError unless a receipt is in a server's chain, and the chain runs through an end that was noted earlier.
 *
 * `links` are all receipts of the server from the first on; `head` is the digest of the last one that was known earlier,
 * `BEGIN` for none, null if nothing was noted.
 */
export function requireInChain(receipt, links, head = null) {
    let before = BEGIN, isFound = false, isKnown = head === null || head === BEGIN;
    links.forEach(([number, content, digest], index) => {
        if (number !== index + 1 || receiptDigest(before, number, content) !== digest) {
            throw new WireError(`the server's chain of receipts is broken at ${index + 1}: receipts were changed or left out`);
        }
        isFound ||= number === receipt.number && digest === receipt.digest;
        isKnown ||= digest === head;
        before = digest;
    });
    if (!isFound) {
        throw new WireError(`receipt ${receipt.number} is not in the server's chain: it was forged, or the server took it back`);
    }
    if (!isKnown) {
        throw new WireError("the server's chain does not hold the receipt that was its last one before: it was rewritten");
    }
}
