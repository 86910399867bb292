/** Directions of a keypoint: peaks of a histogram of the gradients around it (Lowe 2004, Sec. 5). */
import { expOfMinus } from "./exponential_table.js";
/** Directions of one keypoint that COLMAP describes. */
export const MOST_ORIENTATIONS = 2;
const BINS = 36;
/** Sigma of the window, in those of the keypoint. */
const WINDOW = 1.5;
const SMOOTHINGS = 6;
/** Peaks of so much of the highest one count. */
const SHARE = 0.8;
const MOST_PEAKS = 4;
/** The directions of a keypoint in radians, in the order of the histogram's bins, four at most. */
export function orientations(one, gradient) {
    const histogram = smoothed(histogramAround(one, gradient));
    const highest = Math.max(...histogram);
    const found = [];
    for (let bin = 0; bin < BINS && found.length < MOST_PEAKS; bin += 1) {
        const [before, here, after] = [histogram[(bin + BINS - 1) % BINS], histogram[bin], histogram[(bin + 1) % BINS]];
        if (here > SHARE * highest && here > before && here > after) {
            const offset = (-0.5 * (after - before)) / (after + before - 2 * here); // of the parabola through the three
            found.push((2 * Math.PI * (bin + offset + 0.5)) / BINS);
        }
    }
    return found;
}
function histogramAround(one, gradient) {
    const { width, height, lengths, angles } = gradient;
    const sigma = WINDOW * one.sigma;
    const radius = Math.max(Math.floor(3 * sigma), 1);
    const centerX = Math.floor(one.x + 0.5), centerY = Math.floor(one.y + 0.5), most = radius * radius + 0.6;
    const [left, right] = [Math.max(centerX - radius, 0), Math.min(centerX + radius, width - 1)];
    const histogram = new Float64Array(BINS);
    for (let y = Math.max(centerY - radius, 0); y <= Math.min(centerY + radius, height - 1); y += 1) {
        const dy = y - one.y, row = y * width;
        for (let x = left; x <= right; x += 1) {
            const dx = x - one.x, square = dx * dx + dy * dy;
            if (square >= most) {
                continue;
            }
            const weight = expOfMinus(square / (2 * sigma * sigma)) * lengths[row + x];
            const place = (BINS * angles[row + x]) / (2 * Math.PI) - 0.5;
            const bin = Math.floor(place);
            const share = place - bin;
            histogram[(bin + BINS) % BINS] += (1 - share) * weight;
            histogram[(bin + 1) % BINS] += share * weight;
        }
    }
    return histogram;
}
/** A circular histogram after means of three bins, several times over. */
function smoothed(histogram) {
    let now = histogram, next = new Float64Array(BINS);
    for (let time = 0; time < SMOOTHINGS; time += 1) {
        for (let bin = 0; bin < BINS; bin += 1) {
            next[bin] = (now[(bin + BINS - 1) % BINS] + now[bin] + now[(bin + 1) % BINS]) / 3;
        }
        [now, next] = [next, now];
    }
    return now;
}
