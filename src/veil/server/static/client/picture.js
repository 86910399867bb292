/** Pictures as a canvas gives them: their identity, and their gray values. */
import { utf8 } from "./bytes.js";
import { begunBlake2b } from "./digests.js";
import { InputError } from "./errors.js";
/**
 * The digest that identifies a picture: BLAKE2b of its size and its RGB pixels, as Python's veil computes it.
 *
 * `rgba` are the upright image's pixels, four bytes each, as a canvas gives them; what is not opaque is not a photograph.
 * Decoders differ in the last bit of a JPEG's pixels: another browser may see another picture.
 */
export function imageDigest(rgba, width, height) {
    if (rgba.length !== 4 * width * height) {
        throw new InputError(`an image of ${width}x${height} px has ${4 * width * height} bytes of RGBA, got ${rgba.length}`);
    }
    const digest = begunBlake2b({ size: 32 }).update(utf8(`${width}x${height}|`));
    const row = new Uint8Array(3 * width);
    for (let at = 0; at < rgba.length; at += 4 * width) {
        for (let i = at, j = 0; j < row.length; i += 4, j += 3) {
            row[j] = rgba[i];
            row[j + 1] = rgba[i + 1];
            row[j + 2] = rgba[i + 2];
        }
        digest.update(row);
    }
    return digest.digest();
}
// ITU-R 601, in single precision as Python's veil computes it.
const LUMA = [0.299, 0.587, 0.114].map(Math.fround);
/** Gray values of a picture, 0 to 255, rounded: luma of ITU-R 601. `rgba` are four bytes a pixel. */
export function grayOf(rgba) {
    const pixels = new Uint8Array(rgba.length / 4);
    for (let at = 0, from = 0; at < pixels.length; at++, from += 4) {
        const red = Math.fround(LUMA[0] * rgba[from]), green = Math.fround(LUMA[1] * rgba[from + 1]);
        const sum = Math.fround(Math.fround(red + green) + Math.fround(LUMA[2] * rgba[from + 2]));
        pixels[at] = Math.fround(sum + 0.5);
    }
    return pixels;
}
