/** Camera intrinsics: a COLMAP model with its parameters, and the image size; pixel origin at the image's top-left corner. */
import { InputError } from "./errors.js";
import { shortest } from "./numbers.js";
/** COLMAP's model names with their numbers of parameters, in the order in which messages number them. */
export const MODELS = [
    ["SIMPLE_PINHOLE", 3],
    ["PINHOLE", 4],
    ["SIMPLE_RADIAL", 4],
    ["RADIAL", 5],
    ["OPENCV", 8],
    ["OPENCV_FISHEYE", 8],
    ["FULL_OPENCV", 12],
    ["SIMPLE_RADIAL_FISHEYE", 4],
    ["RADIAL_FISHEYE", 5],
];
/** Number of focal lengths of a model: one for radial models and SIMPLE_PINHOLE, two for the others. */
export function focalCount(model) {
    return model.includes("RADIAL") || model === "SIMPLE_PINHOLE" ? 1 : 2;
}
/** Raise InputError for a camera of an unknown model, wrong counts, sizes outside 1..65535 px, or impossible numbers. */
export function requireCamera(camera) {
    const known = MODELS.find(([name]) => name === camera.model);
    if (known === undefined) {
        throw new InputError(`camera model '${camera.model}' is not supported; use one of ${MODELS.map(([name]) => name).join(", ")}`);
    }
    const { params, widthPx, heightPx } = camera;
    if (params.length !== known[1])
        throw new InputError(`${known[0]} takes ${known[1]} parameters, got ${params.length}`);
    if (![widthPx, heightPx].every((side) => Number.isInteger(side) && side >= 1 && side <= 65535)) {
        throw new InputError(`image size must be 1..65535 px a side, got ${widthPx}x${heightPx}`);
    }
    if (!params.every(Number.isFinite) || !params.slice(0, focalCount(camera.model)).every((focal) => focal > 0)) {
        const shown = params.map(shortest).join(", ");
        throw new InputError(`camera parameters must be finite with a positive focal length, got (${shown})`);
    }
}
/** A SIMPLE_RADIAL camera without distortion; the focal length defaults to COLMAP's guess of 1.2 times the longer side. */
export function guessedCamera(widthPx, heightPx, focalPx) {
    const focal = focalPx ?? 1.2 * Math.max(widthPx, heightPx);
    const params = [focal, widthPx / 2, heightPx / 2, 0];
    const camera = { model: "SIMPLE_RADIAL", widthPx, heightPx, params, focalIsKnown: focalPx !== undefined };
    requireCamera(camera);
    return camera;
}
