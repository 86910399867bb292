/** Pairs of a query's keypoints and a map's points, and their agreement with a pose (veil.places.poses.matches). */
import { Sights, declaredCamera } from "../geometry/free_calibration.js";
import { percentile } from "../geometry/linear.js";
import { refined } from "../geometry/pose_and_focal.js";
import { camFromImg, focalPx, imgFromCam, zoomed } from "../geometry/projection.js";
import { inliersOf, ransac, samplesFor } from "../geometry/ransac.js";
import { P3P, P4PF, PointBackground, SAME_PX, apart, pointAgreement } from "../geometry/significance.js";
/** Relative standard deviation of a focal length of which nothing is known. */
export const GUESS_DEVIATION = 0.7;
// A search with the declared focal length finds what the fit puts right, up to this deviation.
const MOST_HELD = 0.15;
const MIN_TRIALS = 100, MAX_TRIALS = 10_000, RIVAL_TRIALS = 3000, TRUSTED_ROUNDS = 2;
/** Share of the pairs that a pose leaves, the most trusted ones, in which a rival is sought. */
export const RIVAL_PART = 0.25;
const HELD_FACTORS = [0.65, 0.95, 1.35];
/** Factors of a focal length of which little is known that the search tries; local optimization puts right what lies between. */
const SEARCHED_FACTORS = Array.from({ length: 9 }, (_, i) => 0.4 * 7 ** (i / 8));
const POINTS_BEYOND = 0.02;
/** Relative standard deviation of a camera's focal length. */
export const deviationOf = (camera) => camera.focalDeviation ?? GUESS_DEVIATION;
/** Whether a focal length is known so little that poses are searched for with several. */
export const isSearched = (camera) => deviationOf(camera) > MOST_HELD;
/** Matched keypoints, for poses by P3P and least squares. */
export class MatchedPoints {
    camera;
    keypointRows;
    pointRows;
    points;
    maxErrorPx;
    seed;
    sampling;
    isSearched;
    #keypoints;
    #check;
    /** Keypoint and point of each pair. */
    #xy;
    #xyz;
    /** Place of each pair among the matched keypoints in their order, and which of these count if those at one place count once. */
    featureOf;
    background;
    #apart;
    #planes = new Map();
    constructor(pairs) {
        this.camera = pairs.camera;
        this.keypointRows = pairs.keypointRows;
        this.pointRows = pairs.pointRows;
        this.points = pairs.points;
        this.maxErrorPx = pairs.maxErrorPx;
        this.seed = pairs.seed;
        this.#keypoints = pairs.keypoints;
        this.#check = pairs.check ?? (() => { });
        this.isSearched = isSearched(pairs.camera);
        this.sampling = this.isSearched ? P4PF : P3P;
        const count = this.count;
        this.#xy = new Float64Array(2 * count);
        this.#xyz = new Float64Array(3 * count);
        for (let pair = 0; pair < count; pair++) {
            for (let i = 0; i < 2; i++)
                this.#xy[2 * pair + i] = pairs.keypoints[2 * pairs.keypointRows[pair] + i];
            for (let i = 0; i < 3; i++)
                this.#xyz[3 * pair + i] = pairs.points[3 * pairs.pointRows[pair] + i];
        }
        const order = Array.from(this.keypointRows.keys()).sort((a, b) => this.keypointRows[a] - this.keypointRows[b]);
        this.featureOf = new Int32Array(count);
        const sorted = new Float64Array(2 * count);
        order.forEach((pair, feature) => {
            this.featureOf[pair] = feature;
            sorted.set(this.#xy.subarray(2 * pair, 2 * pair + 2), 2 * feature);
        });
        this.background = new PointBackground(sorted, this.maxErrorPx);
        this.#apart = apart(sorted, SAME_PX);
    }
    /** Number of pairs. */
    get count() {
        return this.keypointRows.length;
    }
    /** Log of the ratio of an estimate's focal length to the declared one. */
    logFocal(estimate) {
        return Math.log(focalPx(estimate.camera) / focalPx(this.camera));
    }
    /** The inlier threshold in the normalized plane of a camera. */
    limit(camera) {
        return this.maxErrorPx / focalPx(camera);
    }
    /** The least probability that is believed of an agreement by chance within `part` of the threshold. */
    floor(part) {
        return pointAgreement(this.camera, part * this.maxErrorPx);
    }
    /** The first of the pairs `rows` that share a point of the map or a place: repeats are no more evidence. */
    oneToOne(rows) {
        const seen = new Set(), first = [];
        for (let i = 0; i < rows.length; i++) {
            const point = this.pointRows[rows[i]];
            if (seen.has(point))
                continue;
            seen.add(point);
            first.push(rows[i]);
        }
        const places = new Float64Array(2 * first.length);
        first.forEach((row, i) => places.set(this.#xy.subarray(2 * row, 2 * row + 2), 2 * i));
        const kept = apart(places, SAME_PX);
        return Int32Array.from(first.filter((_, i) => kept[i]));
    }
    /** Rows of the pairs with `gaps` within `limit`, one to one; of rivals the pair with the smallest gap is kept. */
    nearest(gaps, limit) {
        const near = [];
        for (let row = 0; row < gaps.length; row++)
            if (gaps[row] <= limit)
                near.push(row);
        return this.oneToOne(near.sort((a, b) => gaps[a] - gaps[b] || a - b));
    }
    /** Number of features of the first `count` pairs, those at one place counted once. */
    placesOfFirst(count) {
        let places = 0;
        for (let pair = 0; pair < count; pair++)
            places += this.#apart[this.featureOf[pair]];
        return places;
    }
    /** Points and keypoints of all pairs, the keypoints in the normalized plane of a camera. */
    normalized(camera) {
        const focal = focalPx(camera);
        let sights = this.#planes.get(focal);
        if (sights === undefined) {
            sights = new Sights(this.#xyz, camFromImg(camera, this.#xy));
            if (this.#planes.size > 32)
                this.#planes.clear();
            this.#planes.set(focal, sights);
        }
        return sights;
    }
    /** Projection (x, y) of each pair's point in pixels; NaN behind the camera. */
    projected({ pose, camera }) {
        const { rotation: r, translation: t } = pose, xyz = this.#xyz, seen = new Float64Array(xyz.length);
        for (let at = 0; at < xyz.length; at += 3) {
            const x = xyz[at], y = xyz[at + 1], z = xyz[at + 2];
            seen[at] = r[0] * x + r[1] * y + r[2] * z + t[0];
            seen[at + 1] = r[3] * x + r[4] * y + r[5] * z + t[1];
            seen[at + 2] = r[6] * x + r[7] * y + r[8] * z + t[2];
        }
        return imgFromCam(camera, seen);
    }
    /** Those of the pairs `rows` whose projection lies within `factor` times the threshold of its keypoint. */
    agreeing(projected, factor, rows) {
        const limit = factor * this.maxErrorPx, out = [], count = rows === undefined ? this.count : rows.length;
        for (let i = 0; i < count; i++) {
            const row = rows === undefined ? i : rows[i];
            const x = projected[2 * row] - this.#xy[2 * row], y = projected[2 * row + 1] - this.#xy[2 * row + 1];
            if (Math.sqrt(x * x + y * y) <= limit)
                out.push(row);
        }
        return Int32Array.from(out);
    }
    /**
     * Pose by LO-RANSAC among the pairs `rows` (default: all) and refinement over its inliers; null if there is none.
     *
     * With `share` only as many samples are drawn as find a pose that this share of the pairs agrees with.
     */
    estimate(rows, share) {
        const maxTrials = share === undefined ? MAX_TRIALS : samplesFor(share, this.sampling.size, RIVAL_TRIALS);
        const factors = this.isSearched ? SEARCHED_FACTORS : [1];
        let best = null;
        for (const factor of factors) {
            const camera = zoomed(this.camera, factor), all = this.normalized(camera), sights = rows === undefined ? all : all.take(rows);
            const limits = {
                seed: this.seed,
                minTrials: Math.min(MIN_TRIALS, maxTrials),
                maxTrials: Math.ceil(maxTrials / Math.sqrt(factors.length)),
                check: this.#check,
            };
            const consensus = ransac(sights, this.limit(camera), this.isSearched ? GUESS_DEVIATION : 0, limits);
            // Costs in pixels compare cameras of different focal lengths.
            const cost = consensus === null ? Infinity : consensus.cost * focalPx(camera) ** 2;
            if (consensus !== null && (best === null || cost < best.cost))
                best = { consensus, camera, cost };
        }
        if (best === null)
            return null;
        const { pose, logFocal } = best.consensus, camera = zoomed(best.camera, Math.exp(logFocal));
        return this.#isPlausible(camera) ? { pose, camera, fit: null, alone: null } : null;
    }
    /** Poses of searches with several times the declared focal length, where little is known of it. */
    *held() {
        for (const factor of this.isSearched ? HELD_FACTORS : []) {
            const camera = zoomed(this.camera, factor);
            const limits = { seed: this.seed, minTrials: MIN_TRIALS, maxTrials: MAX_TRIALS, check: this.#check };
            const consensus = ransac(this.normalized(camera), this.limit(camera), 0, limits);
            if (consensus !== null)
                yield { pose: consensus.pose, camera, fit: null, alone: null };
        }
    }
    /**
     * Pose estimated from the first `part` of the pairs, refined over all pairs that agree with it; null if there is none.
     *
     * Where one pair in twenty is right, samples of all of them may hold no right one; among the most trusted they are frequent.
     */
    amongTrusted(part) {
        const first = Math.round(part * this.count);
        let best = first > this.sampling.size ? this.estimate(Int32Array.from({ length: first }, (_, row) => row)) : null;
        for (let round = 0; round < TRUSTED_ROUNDS && best !== null; round++) {
            const sights = this.normalized(best.camera), limit = this.limit(best.camera);
            const rows = inliersOf(sights, { pose: best.pose, logFocal: 0 }, limit);
            if (rows.length <= this.sampling.size)
                break;
            const { pose, logFocal } = refined(sights.take(rows), best.pose, 0, this.isSearched ? GUESS_DEVIATION : 0, limit / 3);
            const camera = zoomed(best.camera, Math.exp(logFocal));
            if (!this.#isPlausible(camera))
                break;
            best = { pose, camera, fit: null, alone: null };
        }
        return best;
    }
    /** Distance of each pair's projection to its keypoint in the normalized plane of an estimate's camera. */
    gaps(estimate) {
        return this.normalized(estimate.camera).residuals(declaredCamera(estimate.pose));
    }
    /** Whether nearly all keypoints of the query lie in a window of `part` of the picture's width and height. */
    fitsIn(part) {
        return [this.camera.widthPx, this.camera.heightPx].every((side, axis) => {
            const values = this.#keypoints.filter((_, at) => at % 2 === axis);
            const [low, high] = [50 * POINTS_BEYOND, 100 - 50 * POINTS_BEYOND].map((percent) => percentile(values, percent));
            return high - low <= part * side;
        });
    }
    /** Whether a refined focal length lies in COLMAP's range: a tenth of the longer side to ten times it. */
    #isPlausible(camera) {
        const share = focalPx(camera) / Math.max(camera.widthPx, camera.heightPx);
        return !this.isSearched || (share >= 0.1 && share <= 10);
    }
}
