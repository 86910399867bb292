/** Extrema of the difference of Gaussians, placed to a fraction of a pixel (Lowe 2004, Sec. 3.1 and 4). */
import { IMAGES, LEVELS, SIGMA_0 } from "./scale_space.js";
/** COLMAP's thresholds: least contrast, for pixels of 0 to 1, and largest ratio of principal curvatures. */
const PEAK = 0.02 / LEVELS;
const EDGE = 10;
/** Contrast below which a pixel is not looked at. */
const LEAST = 0.8 * PEAK;
/** Steps to a neighboring pixel that a place may take. */
const STEPS = 5;
/** An offset beyond this leads to the neighboring pixel, and one beyond the other is no extremum of this pixel. */
const STEP_OFFSET = 0.6;
const MOST_OFFSET = 1.5;
/** The keypoints of an octave, level by level, in the order of its pixels. */
export function extrema(octave) {
    const { width, height, images } = octave;
    const differences = Array.from({ length: IMAGES - 1 }, (_, k) => difference(images[k], images[k + 1]));
    const found = [];
    for (let level = 0; level < LEVELS; level += 1) {
        const [below, here, above] = [differences[level], differences[level + 1], differences[level + 2]];
        for (let y = 1; y < height - 1; y += 1) {
            for (let x = 1, at = y * width + 1; x < width - 1; x += 1, at += 1) {
                const value = here[at];
                if ((value >= LEAST || value <= -LEAST) && isExtremum(value, at, width, below, here, above)) {
                    const placed = refined({ x, y, level }, octave, [below, here, above]);
                    if (placed !== null) {
                        found.push(placed);
                    }
                }
            }
        }
    }
    return found;
}
function difference(finer, coarser) {
    const made = new Float32Array(finer.length);
    for (let at = 0; at < made.length; at += 1) {
        made[at] = coarser[at] - finer[at];
    }
    return made;
}
/** Whether a value is greater (or, if negative, less) than all its 26 neighbors. */
function isExtremum(value, at, width, below, here, above) {
    const sign = value > 0 ? 1 : -1;
    const least = sign * value;
    for (let row = at - width; row <= at + width; row += width) {
        for (let other = row - 1; other <= row + 1; other += 1) {
            if (sign * below[other] >= least || sign * above[other] >= least || (other !== at && sign * here[other] >= least)) {
                return false;
            }
        }
    }
    return true;
}
/** The extremum of the parabola through a pixel and its neighbors; null where contrast or shape say that it is none. */
function refined(start, octave, values) {
    const { width, height } = octave;
    let { x, y } = start;
    let fit = parabola(values, y * width + x, width);
    for (let step = 1; step < STEPS; step += 1) {
        const dx = fit.offset[0] > STEP_OFFSET && x < width - 2 ? 1 : fit.offset[0] < -STEP_OFFSET && x > 1 ? -1 : 0;
        const dy = fit.offset[1] > STEP_OFFSET && y < height - 2 ? 1 : fit.offset[1] < -STEP_OFFSET && y > 1 ? -1 : 0;
        if (dx === 0 && dy === 0) {
            break;
        }
        [x, y] = [x + dx, y + dy];
        fit = parabola(values, y * width + x, width);
    }
    const [bx, by, bs] = fit.offset;
    const placed = { x: x + bx, y: y + by, scale: start.level + bs };
    const isGood = Math.abs(fit.peak) > PEAK &&
        fit.curvatures >= 0 &&
        fit.curvatures < (EDGE + 1) ** 2 / EDGE &&
        Math.max(Math.abs(bx), Math.abs(by), Math.abs(bs)) < MOST_OFFSET &&
        placed.x >= 0 &&
        placed.x <= width - 1 &&
        placed.y >= 0 &&
        placed.y <= height - 1 &&
        placed.scale >= -1 &&
        placed.scale <= LEVELS + 1;
    return isGood ? { x: placed.x, y: placed.y, level: start.level, sigma: SIGMA_0 * 2 ** (placed.scale / LEVELS) } : null;
}
/** Offset of the extremum of the parabola at a pixel, its value, and trace^2 / determinant of the curvatures in the image. */
function parabola([below, here, above], at, width) {
    const value = here[at];
    const dx = 0.5 * (here[at + 1] - here[at - 1]);
    const dy = 0.5 * (here[at + width] - here[at - width]);
    const ds = 0.5 * (above[at] - below[at]);
    const dxx = here[at + 1] + here[at - 1] - 2 * value;
    const dyy = here[at + width] + here[at - width] - 2 * value;
    const dss = above[at] + below[at] - 2 * value;
    const dxy = 0.25 * (here[at + width + 1] + here[at - width - 1] - here[at + width - 1] - here[at - width + 1]);
    const dxs = 0.25 * (above[at + 1] + below[at - 1] - above[at - 1] - below[at + 1]);
    const dys = 0.25 * (above[at + width] + below[at - width] - above[at - width] - below[at + width]);
    // Cramer's rule for the Hessian times the offset = minus the gradient.
    const [cxx, cxy, cxs] = [dyy * dss - dys * dys, dxs * dys - dxy * dss, dxy * dys - dyy * dxs];
    const determinant = dxx * cxx + dxy * cxy + dxs * cxs;
    let offset = [0, 0, 0];
    if (Math.abs(determinant) > 1e-30) {
        const [cyy, cys, css] = [dxx * dss - dxs * dxs, dxy * dxs - dxx * dys, dxx * dyy - dxy * dxy];
        offset = [
            -(cxx * dx + cxy * dy + cxs * ds) / determinant,
            -(cxy * dx + cyy * dy + cys * ds) / determinant,
            -(cxs * dx + cys * dy + css * ds) / determinant,
        ];
    }
    return {
        offset,
        peak: value + 0.5 * (dx * offset[0] + dy * offset[1] + ds * offset[2]),
        curvatures: (dxx + dyy) ** 2 / (dxx * dyy - dxy * dxy),
    };
}
