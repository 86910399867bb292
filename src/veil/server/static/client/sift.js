/**
 * SIFT as COLMAP extracts it on the processor (Lowe 2004; VLFeat's choices where the paper leaves some), for veil's features.
 *
 * Lowe, Distinctive image features from scale-invariant keypoints, IJCV 60(2), 2004. Parts: `sift/scale_space` (Sec. 3),
 * `sift/extrema` (Sec. 3.1 and 4), `sift/gradients`, `sift/orientation` (Sec. 5), `sift/descriptor` (Sec. 6).
 */
import { InputError } from "./errors.js";
import { DESCRIPTOR_LENGTH, describe, quantize } from "./sift/descriptor.js";
import { extrema } from "./sift/extrema.js";
import { gradients } from "./sift/gradients.js";
import { MOST_ORIENTATIONS, orientations } from "./sift/orientation.js";
import { LEVELS, firstOctave, nextOctave } from "./sift/scale_space.js";
const OCTAVES = 4;
const MOST_FEATURES = 8192;
const LEAST_SIDE = 16;
/**
 * The SIFT features of a picture, keypoints in its pixels.
 *
 * Raises InputError for options outside their range, for a picture below 16 px a side or whose pixels are not as many as its size
 * says, and where no features are found.
 */
export function extractSift(image, options = {}) {
    const most = options.maxFeatures ?? MOST_FEATURES;
    if (!(Number.isInteger(most) && most >= 1 && most <= MOST_FEATURES)) {
        throw new InputError(`maxFeatures must be between 1 and ${MOST_FEATURES}, got ${most}`);
    }
    if (!(image.width >= LEAST_SIDE && image.height >= LEAST_SIDE && image.pixels.length === image.width * image.height)) {
        throw new InputError(`the picture says ${image.width} x ${image.height} px and has ${image.pixels.length}; features need ${LEAST_SIDE} a side`);
    }
    const normalization = options.normalization ?? "L2";
    if (options.firstOctave !== undefined) {
        return packed(image, oriented(image, options.firstOctave, most), normalization);
    }
    const few = oriented(image, 0, most);
    const enough = 2 * few.length >= most;
    return packed(image, enough ? few : oriented(image, -1, most), normalization);
}
/**
 * The features that are kept, from the finest level of the scale space: whole levels from the coarsest until there are enough, as
 * COLMAP does, then those of largest scale. Gradients of the levels that are left out are not computed.
 */
function oriented(image, first, most) {
    const levels = levelsOf(image, first), made = [];
    for (let count = 0; levels.length > 0 && count <= most;) {
        made.unshift(orientedLevel(levels.pop()));
        count += made[0].length;
    }
    const all = made.flat(), sigma = (row) => all[row].one.sigma * all[row].step;
    if (all.length <= most) {
        return all;
    }
    const order = all.map((_, row) => row).sort((a, b) => sigma(b) - sigma(a) || a - b);
    return order
        .slice(0, most)
        .sort((a, b) => a - b)
        .map((row) => all[row]);
}
/** The levels with keypoints of all octaves, from the finest. */
function levelsOf(image, first) {
    const levels = [];
    let octave = firstOctave(image, first);
    for (let number = first; number < first + OCTAVES; number += 1) {
        if (number > first) {
            octave = nextOctave(octave);
        }
        if (Math.min(octave.width, octave.height) < 3) {
            break;
        }
        const found = extrema(octave);
        for (let level = 0; level < LEVELS; level += 1) {
            const here = found.filter((one) => one.level === level);
            if (here.length > 0) {
                levels.push({ found: here, octave, level, number });
            }
        }
    }
    return levels;
}
/** The keypoints of one level in their directions. */
function orientedLevel({ found, octave, level, number }) {
    const gradient = gradients(octave, level), step = 2 ** number, made = [];
    for (const one of found) {
        // COLMAP keeps the first two of up to four directions, in the order of the histogram.
        for (const angle of orientations(one, gradient).slice(0, MOST_ORIENTATIONS)) {
            made.push({ one, angle, gradient, step });
        }
    }
    return made;
}
/** Features as arrays, without those whose descriptor is zero. */
function packed(image, found, normalization) {
    const descriptors = found.map(({ one, angle, gradient }) => quantize(describe(one, angle, gradient), normalization));
    const lively = found.map((_, row) => row).filter((row) => descriptors[row].some((value) => value > 0));
    if (lively.length === 0) {
        throw new InputError("no features were found; the image may be blank or out of focus");
    }
    const count = lively.length;
    const features = {
        width: image.width,
        height: image.height,
        count,
        keypoints: new Float32Array(2 * count),
        descriptors: new Uint8Array(DESCRIPTOR_LENGTH * count),
        normalization,
        scales: new Float32Array(count),
        orientations: new Float32Array(count),
    };
    lively.forEach((row, place) => {
        const { one, angle, step } = found[row];
        features.keypoints[2 * place] = one.x * step + 0.5; // pixel centers lie at +0.5
        features.keypoints[2 * place + 1] = one.y * step + 0.5;
        features.descriptors.set(descriptors[row], DESCRIPTOR_LENGTH * place);
        features.scales[place] = one.sigma * step;
        features.orientations[place] = angle;
    });
    return features;
}
