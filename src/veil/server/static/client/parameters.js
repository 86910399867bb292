/** Parameters of releases of words, version 1 (veil.mechanisms.parameters): what keys draws and what the ledger compares. */
import { concatenated, hex, utf8 } from "./bytes.js";
import { sha256 } from "./digests.js";
import { shortest } from "./numbers.js";
const VERSION = 1;
const WORD_RULE = 1;
/** Parameters of a release of words; `featuresSent` (null: all) changes which features leave, but none of their draws. */
export function wordParameters(mechanism, dictionary, featuresSent) {
    const law = `${mechanism.dictionarySize}|${shortest(mechanism.epsilon)}|${mechanism.m}`;
    const draws = utf8(`words|${law}|${dictionary}|`);
    const facts = {
        version: VERSION,
        release_rule: WORD_RULE,
        K: mechanism.dictionarySize,
        epsilon: shortest(mechanism.epsilon),
        m: mechanism.m,
        features: featuresSent ?? "all",
        dictionary: dictionary.slice(0, 12),
        choices: digestOf(draws),
    };
    return { draws, text: `words ${Object.entries(facts).map(([name, value]) => `${name}=${value}`).join(" ")}` };
}
/** First 16 hex digits of the SHA-256 of some bytes after their length. */
function digestOf(part) {
    const length = new DataView(new ArrayBuffer(8));
    length.setBigUint64(0, BigInt(part.length), true);
    return hex(sha256(concatenated(new Uint8Array(length.buffer), part))).slice(0, 16);
}
