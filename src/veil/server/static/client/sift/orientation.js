/** Directions of a keypoint: peaks of a histogram of the gradients around it (Lowe 2004, Sec. 5). */
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
    const [centerX, centerY] = [Math.floor(one.x + 0.5), Math.floor(one.y + 0.5)];
    const histogram = new Float64Array(BINS);
    for (let y = Math.max(centerY - radius, 0); y <= Math.min(centerY + radius, height - 1); y += 1) {
        for (let x = Math.max(centerX - radius, 0); x <= Math.min(centerX + radius, width - 1); x += 1) {
            const square = (x - one.x) ** 2 + (y - one.y) ** 2;
            if (square >= radius * radius + 0.6) {
                continue;
            }
            const weight = Math.exp(-square / (2 * sigma * sigma)) * lengths[y * width + x];
            const place = (BINS * angles[y * width + x]) / (2 * Math.PI) - 0.5;
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
    let now = histogram;
    for (let time = 0; time < SMOOTHINGS; time += 1) {
        now = now.map((here, bin, all) => (all[(bin + BINS - 1) % BINS] + here + all[(bin + 1) % BINS]) / 3);
    }
    return now;
}
