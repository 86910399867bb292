/** Header of a message: the fixed part, common to all kinds (docs/reference/wire.md). */
import { fromHex, hex, utf8, viewOf } from "./bytes.js";
import { MODELS, sentDeviation } from "./camera.js";
import { InputError, WireError } from "./errors.js";
import { requirePlausible } from "./intrinsics.js";
import { shortest } from "./numbers.js";
export const HEAD_BYTES = 106;
export const GRAVITY_BYTES = 24;
export const MAX_FEATURES = 1 << 17;
const VERSION = 1;
const LAST_KIND = 4;
const NORMALIZATIONS = ["L2", "L1_ROOT"];
const FOCAL_KNOWN = 1, GRAVITY_KNOWN = 2;
// Deviations of known focal lengths by the two bits that stand for them; the first is that of messages without any.
const DEVIATIONS = [0.05, 0.01, 0.02, 0.1];
const DEVIATION_SHIFT = 2, DEVIATION_MASK = 3;
/** Whether the form is in words, not subspaces. */
export const hasWords = (head) => head.kind > 2;
/** Whether lines take the place of positions. */
export const hasLines = (head) => head.kind % 2 === 0;
/** Whether lines or positions come with gravity. */
export const gravityIsKnown = (head) => (head.flags & GRAVITY_KNOWN) !== 0;
/** Relative standard deviation of the focal length, as its class says; null: it is a guess. */
export const focalDeviation = (head) => (head.flags & FOCAL_KNOWN) === 0 ? null : DEVIATIONS[(head.flags >> DEVIATION_SHIFT) & DEVIATION_MASK];
/** Offset in bytes of gravity, positions or lines. */
export const observationsOffset = (head) => HEAD_BYTES + 8 * MODELS[head.model][1];
/** Offset in bytes of the form. */
export function payloadOffset(head) {
    const positions = 8 * head.features + (gravityIsKnown(head) ? GRAVITY_BYTES : 0);
    const lines = GRAVITY_BYTES + 12 * head.features + Math.ceil(head.features / 8);
    return observationsOffset(head) + (hasLines(head) ? lines : positions);
}
/** Bytes of the header of a message of words. */
export function packHead(facts) {
    const { camera, space } = facts;
    const out = new Uint8Array(HEAD_BYTES), view = new DataView(out.buffer);
    out.set(utf8("VEIL"));
    out[4] = VERSION;
    out[5] = facts.hasLines ? 4 : 3;
    out[7] = MODELS.findIndex(([name]) => name === camera.model);
    out[8] = focalFlags(camera.focalDeviation) | (facts.gravityIsKnown ? GRAVITY_KNOWN : 0);
    out[9] = NORMALIZATIONS.indexOf(space.normalization);
    view.setUint16(10, camera.widthPx, true);
    view.setUint16(12, camera.heightPx, true);
    view.setUint32(14, facts.features, true);
    view.setUint16(18, space.dim, true);
    view.setUint16(20, facts.m, true);
    view.setFloat32(22, space.ditherSteps, true);
    out.set(utf8(space.descriptor), 26);
    out.set(facts.own, 58);
    if (space.codebook)
        out.set(fromHex(space.codebook), 74);
    return out;
}
/** Bits of a header for a focal length of this deviation. */
function focalFlags(deviation) {
    const sent = sentDeviation(deviation);
    return sent === null ? 0 : FOCAL_KNOWN | (DEVIATIONS.indexOf(sent) << DEVIATION_SHIFT);
}
/** Header that the first 106 bytes of a message hold. Raises WireError for fields that no message may have. */
export function readHead(message) {
    if (message.length < HEAD_BYTES)
        throw new WireError(`the header is truncated: ${message.length} of ${HEAD_BYTES} bytes`);
    const view = viewOf(message);
    if (view.getUint32(0) !== 0x5645494c) {
        throw new WireError("this is not a veil message");
    }
    const [version, kind, itemBytes, model, flags, normalization] = message.slice(4, 10);
    if (version !== VERSION) {
        throw new WireError(`message version ${version} is not supported (this veil reads ${VERSION}); update veil`);
    }
    const items = kind > 2 ? [0] : [2, 4];
    if (!(kind >= 1 && kind <= LAST_KIND) || !items.includes(itemBytes)) {
        throw new WireError("the header names a kind or precision that does not exist; a newer veil may read it");
    }
    if (model >= MODELS.length || normalization >= NORMALIZATIONS.length) {
        throw new WireError("the header names a camera model or normalization that does not exist");
    }
    if (flags & ~(FOCAL_KNOWN | GRAVITY_KNOWN | (DEVIATION_MASK << DEVIATION_SHIFT))) {
        throw new WireError("the header holds an unknown flag");
    }
    if ((flags & FOCAL_KNOWN) === 0 && flags >> DEVIATION_SHIFT !== 0) {
        throw new WireError("the header gives a deviation of a focal length that is a guess");
    }
    const features = view.getUint32(14, true);
    if (!(features >= 1 && features <= MAX_FEATURES)) {
        throw new WireError(`the header asks for ${features} features; a message holds 1 to ${MAX_FEATURES}`);
    }
    return {
        kind: kind,
        itemBytes: itemBytes,
        model: model,
        flags: flags,
        normalization: normalization,
        widthPx: view.getUint16(10, true),
        heightPx: view.getUint16(12, true),
        features,
        dim: view.getUint16(18, true),
        m: view.getUint16(20, true),
        ditherSteps: view.getFloat32(22, true),
        descriptor: message.slice(26, 58),
        own: message.slice(58, 74),
        codebook: message.slice(74, 106),
    };
}
/** Camera and space that the header of a message names. Raises WireError for values that no camera or space may have. */
export function cameraAndSpace(message, head) {
    const [model, count] = MODELS[head.model];
    const view = viewOf(message);
    const space = {
        descriptor: textOf(head.descriptor, "descriptor"),
        normalization: NORMALIZATIONS[head.normalization],
        dim: head.dim,
        codebook: head.codebook.some((byte) => byte !== 0) ? hex(head.codebook) : "",
        ditherSteps: head.ditherSteps,
    };
    const camera = {
        model,
        widthPx: head.widthPx,
        heightPx: head.heightPx,
        params: Array.from({ length: count }, (_, i) => view.getFloat64(HEAD_BYTES + 8 * i, true)),
        focalDeviation: focalDeviation(head),
    };
    try {
        requireSpace(space);
        requirePlausible(camera);
    }
    catch (error) {
        if (error instanceof InputError)
            throw new WireError(`the header holds impossible values: ${error.message}`);
        throw error;
    }
    return { camera, space };
}
/** Raise InputError for a space with values outside their ranges. */
export function requireSpace(space) {
    if (!/^[ -~]{1,32}$/.test(space.descriptor)) {
        throw new InputError(`descriptor name must be 1 to 32 printable ASCII characters, got '${space.descriptor}'`);
    }
    if (!(space.dim >= 2 && space.dim <= 4096))
        throw new InputError(`dim must be between 2 and 4096, got ${space.dim}`);
    if (!(space.ditherSteps >= 0 && space.ditherSteps <= 64)) {
        throw new InputError(`dither_steps must be between 0 and 64, got ${shortest(space.ditherSteps)}`);
    }
    if (space.codebook && !/^[0-9a-f]{64}$/.test(space.codebook)) {
        throw new InputError(`codebook must be a SHA-256 in hex or empty, got '${space.codebook}'`);
    }
}
/** Name in a field that is padded with zeros. Raises WireError if it is empty or not printable ASCII. */
export function textOf(field, name) {
    const stripped = String.fromCharCode(...field).replace(/\0+$/, "");
    if (!/^[ -~]+$/.test(stripped))
        throw new WireError(`the ${name} name is not printable ASCII`);
    return stripped;
}
