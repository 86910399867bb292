/** The releasing device: secret, ledger and budgets together, so that no release escapes the ledger by accident. */
import { hex } from "./bytes.js";
import { encode } from "./codec.js";
import { basicEpsilon, composedEpsilon } from "./composition.js";
import { sha256 } from "./digests.js";
import { SKETCH_BYTES } from "./differing_bits.js";
import { earlierDraws, sealedDraws } from "./drawn.js";
import { InputError, ReleaseRefused } from "./errors.js";
import { Ledger, shownBefore } from "./ledger.js";
import { SubsetMechanism } from "./mechanism.js";
import { shortest } from "./numbers.js";
import { Secret, entropy } from "./randomness.js";
import { sketchDirections, sketched, withEarlierWords } from "./repeats.js";
import { privatizeWords, taken } from "./words.js";
const SUBSET_SIZE = 2, DELTA = 1e-6;
// Probability of being the true word above which a sent word is no longer hidden among others.
const MAX_POSTERIOR = 0.25;
/** A device that releases photographs under its secret and enters each release in its ledger first. */
export class Device {
    ledger;
    /** Whether the secret was made now: nothing that was released under a lost one can be repeated. */
    isNew;
    #secret;
    #directions = null;
    constructor(secret, ledger, isNew) {
        this.#secret = secret;
        this.ledger = ledger;
        this.isNew = isNew;
    }
    /**
     * The device whose secret and ledger a store keeps; both are made on first use.
     *
     * Raises ReleaseRefused if the secret is missing although the ledger has releases, or if there is no randomness to make one.
     */
    static async open(store) {
        const made = entropy();
        const { key, isNew } = await store.transact((held) => {
            if (held.secret !== null)
                return { result: { key: held.secret, isNew: false } };
            if (held.entries.length > 0) {
                throw new ReleaseRefused("the secret is lost, but not the ledger: under another one the same photographs would be released a second time. " +
                    "Delete the whole store if nothing that it lists matters any more");
            }
            return { result: { key: made, isNew: true }, secret: made };
        });
        return new Device(new Secret(key), new Ledger(store), isNew);
    }
    /** Eight hex digits that tell the secret apart and say nothing about it. */
    get fingerprint() {
        return this.#secret.fingerprint;
    }
    /**
     * Protect one image in words, enter the release in the ledger, and return it with the message that may leave.
     *
     * The same image and choices give the same bytes each time. `name` is for the ledger alone. With `purpose` "localize"
     * (default), features that left before leave again with their earlier words, of releases that were made so: it is for
     * queries, bursts and video (docs/theory/release.md#near-repeats). "map" draws for each image by itself, as maps need it. An
     * image that left before leaves as it did then, whatever is asked.
     *
     * Raises ReleaseRefused, and releases nothing, for a second, different release (unless `allowSecond`), beyond a budget, or
     * with words made from one's own images; InputError if features and choices do not fit; VeilError if what is kept is damaged.
     */
    async release(image, protection, options = {}) {
        const { dictionary, epsilon, m = SUBSET_SIZE, featuresSent = null, delta = DELTA } = protection;
        const mechanism = new SubsetMechanism({ dictionarySize: dictionary.size, epsilon, m });
        const gravity = protection.gravity ? checkedGravity(protection.gravity) : null;
        const allowPrivateDictionary = protection.allowPrivateDictionary ?? false;
        if (!allowPrivateDictionary)
            await this.#requirePublic(dictionary);
        const made = privatizeWords(image, { mechanism, dictionary, featuresSent, gravity, allowPrivateDictionary }, this.#secret);
        const positions = gravity === null ? "positions" : `positions gravity=${gravity.map(shortest).join(",")}`;
        const charges = [{ mechanism, features: made.order.length }];
        const imageEpsilon = composedEpsilon(charges, delta);
        const { allowSecond = false, name = "", purpose = "localize" } = options;
        const entered = await this.ledger.record((held) => this.#beside(held, made, image, { name, positions, purpose }), { allowSecond });
        return {
            message: entered.message,
            releasedAs: entered.entry.releasedAs,
            upload: entered.upload,
            imageEpsilon,
            basicEpsilon: basicEpsilon(charges),
            medianError: median(made.quantizationError),
            order: entered.order,
            shownBefore: shownBefore(entered.entry),
            notes: notes(mechanism, made.missing),
        };
    }
    /** A release beside what is held: its message, in which features that left before may have their earlier words. */
    #beside(held, made, image, { name, positions, purpose }) {
        const imageDigest = hex(image.digest);
        const left = held.entries.filter((entry) => entry.imageDigest === imageDigest);
        const leftAs = left.some((entry) => shownBefore(entry) > 0) ? "localize" : "map";
        const isAgain = (left.length > 0 ? leftAs : purpose) === "localize"; // the image leaves as it did then
        const { upload, order, draws } = isAgain ? this.#again(held.drawn, made, image) : { ...made, draws: null };
        const message = encode(upload), releasedAs = this.#secret.pseudonym(image.digest);
        const { dictionarySize, epsilon, m } = upload.form.mechanism;
        const entry = {
            imageDigest,
            messageDigest: hex(sha256(message)),
            releasedAs,
            name: name || releasedAs,
            parameters: `${made.parameters.text} secret=${this.fingerprint} ${positions}`,
            features: order.length,
            releasedAt: Date.now() / 1000,
            mechanism: { dictionarySize, epsilon, m },
            charged: draws === null ? order.length : draws.features,
        };
        return { entry, draws, message, upload, order };
    }
    /** A release with the earlier words of features that left before, and the words of the others, sealed. */
    #again(drawn, { upload, order, parameters }, image) {
        const imageDigest = hex(image.digest), kind = parameters.text, { form } = upload;
        this.#directions ??= sketchDirections(this.#secret);
        const sketches = sketched(taken(image.features.descriptors, order, 128), this.#directions);
        const earlier = earlierDraws(drawn, kind, imageDigest, this.#secret);
        const { rows, ids, isNew } = withEarlierWords(form, sketches, earlier);
        const places = Uint32Array.from(rows.keys()).filter((place) => isNew[place]);
        const added = {
            sketches: taken(sketches, taken(rows, places, 1), SKETCH_BYTES),
            ids: taken(ids, places, form.mechanism.m),
        };
        return {
            upload: { ...upload, keypoints: taken(upload.keypoints, rows, 2), form: { ...form, ids } },
            order: taken(order, rows, 1),
            draws: { imageDigest, kind, features: places.length, sealed: sealedDraws(added, this.#secret) },
        };
    }
    /** Raise ReleaseRefused if a dictionary was made from an image of the ledger. */
    async #requirePublic(dictionary) {
        const own = (await this.ledger.entries()).find((entry) => dictionary.wasMadeFrom(entry.imageDigest));
        if (own === undefined)
            return;
        throw new ReleaseRefused(`the dictionary was made from a photograph of your own (${own.name}): its words are all but its descriptors, which no ` +
            "epsilon covers; take one that was made from other photographs");
    }
}
/** A direction of down scaled to unit length. Raises InputError for one that no camera has, such as one that points up. */
export function checkedGravity(direction) {
    const length = Math.hypot(...direction);
    if (!Number.isFinite(length) || !(length > 1e-6)) {
        throw new InputError(`gravity must be a finite vector of some length, got ${direction.join(", ")}`);
    }
    const unit = direction.map((value) => value / length);
    if (unit[1] < -0.5) {
        throw new InputError("gravity points up in a camera frame whose y-axis points down; negate the readings (accelerometers at rest report the " +
            "reaction, which points up)");
    }
    return unit;
}
function median(values) {
    const sorted = values.slice().sort(), half = sorted.length >> 1;
    return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
/** What the user should read of one release. */
function notes(mechanism, missing) {
    const said = [];
    if (!Number.isFinite(mechanism.epsilon)) {
        said.push("warning: epsilon is infinite: the nearest word of each feature is sent for certain. This is no privacy; words can be " +
            "inverted into images almost like descriptors");
    }
    else if (mechanism.posterior > MAX_POSTERIOR) {
        said.push("warning: a word that is sent is likely the true one; choose a smaller epsilon, or a larger dictionary");
    }
    if (missing > 0) {
        said.push(`note: the image has ${missing} features fewer than were asked for; their number tells how textured it is`);
    }
    return said;
}
