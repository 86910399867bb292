/** Release of one image in words: random subsets of a public dictionary in place of descriptors, in an order that is drawn. */
import { requirePlausible } from "./intrinsics.js";
import { concatenated, floatBytes, hex, utf8 } from "./bytes.js";
import { InputError, ReleaseRefused } from "./errors.js";
import { wordParameters } from "./parameters.js";
import { bernoulli, subsetBelow } from "./randomness.js";
const DIM = 128;
/**
 * Release one image in words. Under one secret the same image and choices give the same release, here and in Python.
 *
 * Raises InputError for features that cannot be released, or that are not of the dictionary's kind, ReleaseRefused if the image
 * is among those that the dictionary was made from. Theory: docs/theory/words.md#the-sampler-in-integers.
 */
export function privatizeWords(image, choices, randomness) {
    requireImage(image);
    const { features } = image;
    const { mechanism, dictionary, featuresSent } = choices;
    if (featuresSent !== null && !(Number.isInteger(featuresSent) && featuresSent >= 1)) {
        throw new InputError(`featuresSent must be at least 1, got ${featuresSent}; use null to send all`);
    }
    requireFit(features, mechanism, dictionary);
    if (dictionary.wasMadeFrom(hex(image.digest)) && !choices.allowPrivateDictionary) {
        throw new ReleaseRefused("the dictionary was made from this very photograph: its words are all but its descriptors, which no epsilon covers; " +
            "take one that was made from other photographs");
    }
    const space = {
        descriptor: "sift",
        normalization: features.normalization,
        dim: DIM,
        codebook: "",
        ditherSteps: 0,
    };
    const rows = featureBytes(features);
    const order = releaseOrder(image.digest, rows, randomness).slice(0, featuresSent ?? undefined);
    const sent = Array.from(order, (row) => rows[row]);
    const near = dictionary.nearest(concatenated(...sent.map((row) => row.subarray(8))));
    const opening = concatenated(wordParameters(mechanism, dictionary.digest, null).draws, image.digest);
    const contexts = numbered(sent, (row, repeat) => concatenated(opening, row, utf8(`|${repeat}`)));
    const ids = new Uint32Array(order.length * mechanism.m);
    contexts.forEach((context, i) => ids.set(randomized(near.words[i], mechanism, randomness, context), i * mechanism.m));
    return {
        upload: {
            kind: "positions",
            camera: image.camera,
            keypoints: taken(features.keypoints, order, 2),
            form: { ids, mechanism, space, dictionary: dictionary.digest },
            gravity: choices.gravity,
        },
        parameters: wordParameters(mechanism, dictionary.digest, featuresSent),
        order,
        quantizationError: near.distances,
        missing: featuresSent === null ? 0 : featuresSent - order.length,
    };
}
/**
 * One random subset for a true word, exactly by the mechanism's law and in integers only, sorted; `context` keys its draw.
 *
 * Sources: Pittaluga and Zhuang 2023, Eq. 5; docs/theory/words.md#the-sampler-in-integers.
 */
export function randomized(trueWord, mechanism, randomness, context) {
    const isKept = bernoulli(randomness, concatenated(utf8("truth|"), context), mechanism.truth);
    const size = mechanism.m - (isKept ? 1 : 0);
    const others = subsetBelow(randomness, concatenated(utf8("others|"), context), mechanism.dictionarySize - 1, size);
    // 0 .. K-2 stand for all words but the true one: those from the true word on are shifted by one.
    const drawn = others.map((word) => (word >= trueWord ? word + 1 : word));
    if (isKept)
        drawn.push(trueWord);
    return Uint32Array.from(drawn).sort();
}
/** Rows in their order of release, sorted by a keyed hash of each (docs/theory/release.md#order). */
function releaseOrder(digest, rows, randomness) {
    const opening = concatenated(utf8("order|"), digest);
    const contexts = numbered(rows, (row, repeat) => concatenated(opening, row, utf8(repeat ? `|again ${repeat}` : "")));
    const keys = contexts.map((context) => randomness.bits64(context, 1)[0]);
    const order = Uint32Array.from(rows.keys());
    return order.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b));
}
/** Contexts of features; equal features are counted, as equal draws would tell that they are equal. */
function numbered(rows, context) {
    const counts = new Map();
    return rows.map((row) => {
        const key = hex(row), repeat = counts.get(key) ?? 0;
        counts.set(key, repeat + 1);
        return context(row, repeat);
    });
}
/** Rows of `width` values each, in the order given. */
export function taken(values, rows, width) {
    const out = new values.constructor(rows.length * width);
    rows.forEach((row, i) => out.set(values.subarray(row * width, row * width + width), i * width));
    return out;
}
/** Position and descriptor of each feature as bytes. */
function featureBytes(features) {
    return Array.from({ length: features.count }, (_, row) => concatenated(floatBytes(features.keypoints.subarray(2 * row, 2 * row + 2), 4), features.descriptors.subarray(DIM * row, DIM * row + DIM)));
}
/** Raise InputError for features that cannot be released. */
function requireImage({ features, camera, digest }) {
    const { count, keypoints, descriptors, width, height } = features;
    if (!(count >= 1))
        throw new InputError("there are no features to privatize; the image may be blank");
    if (keypoints.length !== 2 * count || descriptors.length !== DIM * count) {
        throw new InputError(`features need ${count} positions and descriptors of ${DIM} values; extract the image again`);
    }
    if (digest.length !== 32)
        throw new InputError(`an image's digest has 32 bytes, got ${digest.length}`);
    if (camera.widthPx !== width || camera.heightPx !== height) {
        throw new InputError(`the camera is for ${camera.widthPx}x${camera.heightPx} px but the image has ${width}x${height}; give its own`);
    }
    for (let row = 0; row < count; row++) {
        if (descriptors.subarray(DIM * row, DIM * row + DIM).some((value) => value !== 0))
            continue;
        throw new InputError(`descriptor ${row} is all zero; drop such rows`);
    }
    requirePlausible(camera);
}
/** Raise InputError unless features, mechanism and dictionary are of the same kind. */
function requireFit(features, mechanism, dictionary) {
    const given = `sift ${features.normalization} ${DIM}-D`;
    const known = `${dictionary.descriptor} ${dictionary.normalization} ${dictionary.dim}-D`;
    if (given !== known) {
        throw new InputError(`the features are [${given}], the dictionary is of [${known}]; give one of the same kind`);
    }
    if (mechanism.dictionarySize !== dictionary.size) {
        throw new InputError(`the mechanism is for ${mechanism.dictionarySize} words, the dictionary has ${dictionary.size}`);
    }
}
