/** LO-RANSAC of a pose from points and where they were seen: samples of three, truncated squares, local optimization. */
import { declaredCamera } from "./free_calibration.js";
import { threePointPoses } from "./p3p.js";
import { refined } from "./pose_and_focal.js";
const ROUNDS = 3; // of local optimization after each new best pose (Chum et al. 2003)
const CONFIDENCE = 0.99999;
const SAMPLE = 3;
/** The loss of the local optimization begins to flatten at this share of the threshold. */
const NOISE = 1 / 3;
/**
 * The pose of least truncated squares (Torr and Zisserman 2000) among those of random samples; null if none gave a pose.
 *
 * `limit` is the inlier threshold in the normalized plane. Local optimization moves the log of the focal length as well, by
 * deviations of `focalDeviation`, 0 for not at all.
 */
export function ransac(sights, limit, focalDeviation, limits) {
    const { points, seen, count } = sights;
    if (count < SAMPLE)
        return null;
    const random = new Draws(limits.seed), rays = new Float64Array(9), corners = new Float64Array(9), rows = new Int32Array(SAMPLE);
    let best = null, needed = limits.maxTrials;
    for (let trial = 0; trial < limits.maxTrials && (trial < needed || trial < limits.minTrials); trial++) {
        if (trial % 64 === 0)
            limits.check();
        random.sample(count, rows);
        for (let k = 0; k < SAMPLE; k++) {
            const x = seen[2 * rows[k]], y = seen[2 * rows[k] + 1], length = Math.sqrt(x * x + y * y + 1);
            rays[3 * k] = x / length;
            rays[3 * k + 1] = y / length;
            rays[3 * k + 2] = 1 / length;
            for (let i = 0; i < 3; i++)
                corners[3 * k + i] = points[3 * rows[k] + i];
        }
        for (const pose of threePointPoses(rays, corners)) {
            const cost = truncated(sights, pose, 0, limit, best === null ? Infinity : best.cost);
            if (best !== null && cost >= best.cost)
                continue;
            best = optimized(sights, { pose, logFocal: 0, cost }, limit, focalDeviation);
            needed = samplesNeeded((inliersOf(sights, best, limit).length / count) ** SAMPLE, CONFIDENCE);
        }
    }
    return best;
}
/** The best of a pose and its successive refinements on its inliers, at most `ROUNDS`. */
function optimized(sights, start, limit, focalDeviation) {
    let best = start;
    for (let round = 0; round < ROUNDS; round++) {
        const rows = inliersOf(sights, best, limit);
        if (rows.length < 2 * SAMPLE)
            break;
        const found = refined(sights.take(rows), best.pose, best.logFocal, focalDeviation, NOISE * limit);
        const cost = truncated(sights, found.pose, found.logFocal, limit, Infinity);
        if (!(cost < best.cost))
            break;
        best = { ...found, cost };
    }
    return best;
}
/** Rows of the sights within the threshold of a pose. */
export function inliersOf(sights, { pose, logFocal }, limit) {
    const camera = declaredCamera(pose);
    camera.offsets[0] = logFocal;
    const rows = [];
    sights.residuals(camera).forEach((gap, row) => {
        if (gap <= limit)
            rows.push(row);
    });
    return Int32Array.from(rows);
}
/** Sum of the squared residuals, each at most the squared threshold; more than `most` where it is certain to exceed that. */
function truncated({ points, seen, count }, pose, logFocal, limit, most) {
    const { rotation: r, translation: t } = pose, zoom = Math.exp(logFocal), square = limit * limit;
    const [r0, r1, r2, r3, r4, r5] = [r[0], r[1], r[2], r[3], r[4], r[5]], [r6, r7, r8] = [r[6], r[7], r[8]];
    const [t0, t1, t2] = [t[0], t[1], t[2]];
    let cost = 0;
    for (let n = 0, p = 0, s = 0; n < count; n++, p += 3, s += 2) {
        const x = points[p], y = points[p + 1], z = points[p + 2], depth = r6 * x + r7 * y + r8 * z + t2;
        if (depth > 1e-9) {
            const scale = zoom / depth;
            const u = (r0 * x + r1 * y + r2 * z + t0) * scale - seen[s], v = (r3 * x + r4 * y + r5 * z + t1) * scale - seen[s + 1];
            const gap = u * u + v * v;
            cost += gap < square ? gap : square;
        }
        else
            cost += square;
        if (cost >= most)
            return Infinity;
    }
    return cost;
}
/** Number of samples of which one holds inliers only with probability `confidence`. */
export function samplesNeeded(cleanShare, confidence) {
    if (cleanShare >= 1)
        return 1;
    if (cleanShare < 1e-15)
        return 2 ** 62;
    return Math.ceil(Math.log(1 - confidence) / Math.log1p(-cleanShare));
}
/** Number of samples of `size` pairs, at most `most`, of which one is of inliers only but for a chance of 1 in 1,000. */
export function samplesFor(share, size, most) {
    return Math.min(most, samplesNeeded(Math.min(share, 1) ** size, 0.999));
}
/** Uniform draws from a seed (Steele et al. 2014, SplitMix32's mixing): the search is the same each time. */
export class Draws {
    #state;
    constructor(seed) {
        this.#state = seed | 0;
    }
    /** A number from 0 to `bound` - 1. */
    below(bound) {
        this.#state = (this.#state + 0x9e3779b9) | 0;
        let mixed = this.#state ^ (this.#state >>> 16);
        mixed = Math.imul(mixed, 0x21f0aaad);
        mixed ^= mixed >>> 15;
        mixed = Math.imul(mixed, 0x735a2d97);
        mixed ^= mixed >>> 15;
        return Math.floor(((mixed >>> 0) / 2 ** 32) * bound);
    }
    /** Different numbers from 0 to `bound` - 1, as many as `out` holds. */
    sample(bound, out) {
        for (let at = 0; at < out.length; at++) {
            do
                out[at] = this.below(bound);
            while (out.subarray(0, at).includes(out[at]));
        }
    }
}
