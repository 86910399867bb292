/**
 * Fits of pose and focal length together to the pairs of a query, the second optima of such fits, and what they tell
 * (veil.places.poses.joint; docs/theory/localization.md#pose-and-focal-length-together).
 *
 * Pairs in tiles name each keypoint once, so that none of them is left out for agreeing by accident.
 */
import { declaredCamera } from "../geometry/free_calibration.js";
import { eigen } from "../geometry/linear.js";
import { threePointPoses } from "../geometry/p3p.js";
import { crossMatrix, poseDifference, product, times } from "../geometry/pose.js";
import { LOSS_SIGMAS, PARAMETERS, fitJointly, focalDeviation } from "../geometry/pose_and_focal.js";
import { focalPx, zoomed } from "../geometry/projection.js";
import { Draws } from "../geometry/ransac.js";
import { GUESS_DEVIATION, deviationOf } from "./matches.js";
const NOISE_FLOOR_PX = 0.5, ROUNDS = 5, LEAST_FITTED = PARAMETERS + 1;
const SAMPLES = 16, SAMPLED = 2, SAMPLE_SIZE = 3;
const ZOOMS = [-1.5, 1.5], HELD = 1e-3, MOST_HELD = 0.15;
const FOCAL_SIGMAS = 4;
const SAME_COST = 0.1, MOST_DOUBT = Math.log(100), SAME_SQUARED = 9;
// The plane of fewer points is no plane.
const MINIMAL_LINES = 6;
/**
 * The most likely estimate that fits of pose and focal length lead to, from a start and from others that its pairs give.
 *
 * These are the mirror image about the points' plane, fits with other focal lengths, poses of minimal samples of the inliers,
 * and the `others` that a search gave. What optima within the noise differ by enters the covariance.
 */
export function settled(matched, start, others = []) {
    const first = fitted(matched, start);
    if (first.fit === null)
        return first;
    const optima = [first, ...otherStarts(matched, first, agreeing(matched, first)).map((other) => fitted(matched, other))];
    for (const other of others)
        optima.push(fitted(matched, other));
    let found = costs(matched, optima);
    // A camera far away sees all points where lines of one way meet, which is as likely: no right pose is lost to it.
    if (isBound(first))
        found = found.map((cost, i) => (isBound(optima[i]) ? cost : Infinity));
    let row = found.indexOf(Math.min(...found));
    if (row < 0 || found[0] <= found[row] + SAME_COST)
        row = 0;
    const again = row === 0 ? first : fitted(matched, optima[row]);
    const fits = [again, optima[row], first].filter(({ fit }) => fit !== null), best = fits.find(isBound) ?? fits[0];
    const doubts = optima.map((other, i) => ({ other, doubt: Math.max(found[i] - found[row], 0) }));
    return spread(matched, best, doubts.filter(({ doubt }, i) => i !== row && doubt <= MOST_DOUBT));
}
const isBound = ({ fit }) => fit !== null && fit.covariance !== null;
/** The estimate after fits of pose and focal length together to the pairs that agree with it, until these stay the same. */
export function fitted(matched, start, deviation = deviationOf(matched.camera)) {
    let estimate = start, last = new Int32Array(0);
    for (let round = 0; round < ROUNDS; round++) {
        const rows = agreeing(matched, estimate);
        if (rows.length < LEAST_FITTED || areSame(rows, last))
            break;
        estimate = fittedTo(matched, estimate, rows, deviation);
        last = rows;
    }
    return estimate;
}
function areSame(a, b) {
    return a.length === b.length && a.every((value, i) => value === b[i]);
}
/** Rows of the pairs that agree with an estimate, one to one, in ascending order. */
export function agreeing(matched, estimate) {
    return Int32Array.from(matched.nearest(matched.gaps(estimate), matched.limit(estimate.camera))).sort();
}
function fittedTo(matched, start, rows, deviation) {
    const { camera } = start, law = { mean: -matched.logFocal(start), deviation };
    const fit = fitJointly(matched.normalized(camera).take(rows), start.pose, law, NOISE_FLOOR_PX / focalPx(camera));
    return { pose: fit.pose, camera: zoomed(camera, Math.exp(fit.logFocal)), fit, alone: null };
}
/** Sentence on a focal length that the pairs contradict beyond what is known of the declared one, or null. */
export function contradictedFocal(matched, estimate) {
    const known = deviationOf(matched.camera), free = fitted(matched, estimate, Math.max(known, GUESS_DEVIATION));
    if (free.fit === null)
        return null;
    const both = Math.hypot(known, focalDeviation(free.fit));
    if (Math.abs(matched.logFocal(free)) <= FOCAL_SIGMAS * both)
        return null;
    return (`the matches show a focal length of ${focalPx(free.camera).toFixed(0)} px where ${focalPx(matched.camera).toFixed(0)} px are ` +
        `declared, known to ${Number((100 * known).toPrecision(2))} %; is the picture cropped, zoomed or a photograph of a ` +
        "photograph, or its focal length wrong?");
}
/** How many deviations of both the focal length that the pairs show is from the declared one; 0 if they show none. */
function apartBy(matched, estimate) {
    const fit = estimate.alone ?? estimate.fit, known = deviationOf(matched.camera);
    if (fit === null || !(focalDeviation(fit) < known))
        return 0;
    // Of two normal laws of one number the mean lies between theirs, by their variances.
    return Math.abs(matched.logFocal(estimate)) / Math.sqrt(known ** 2 - focalDeviation(fit) ** 2);
}
/** The camera of an estimate with the deviation of its focal length: the declared one where the fit leaves it open. */
export function solvedCamera(matched, { camera, fit }) {
    const known = fit === null ? Infinity : focalDeviation(fit);
    return { ...camera, focalDeviation: Number.isFinite(known) ? known : deviationOf(matched.camera) };
}
/** Where other optima may be found: a pose's mirror image, its fits with other focal lengths, poses of samples of its inliers. */
function otherStarts(matched, { pose, camera }, rows) {
    const sights = matched.normalized(camera).take(rows), starts = [], add = (own, lens = camera) => {
        starts.push({ pose: own, camera: lens, fit: null, alone: null });
    };
    const other = mirrored(pose, sights);
    if (other !== null)
        add(other);
    for (const deviations of ZOOMS) {
        const lens = zoomed(camera, Math.exp(deviations * Math.min(deviationOf(matched.camera), MOST_HELD)));
        const held = { mean: 0, deviation: HELD };
        add(fitJointly(matched.normalized(lens).take(rows), pose, held, NOISE_FLOOR_PX / focalPx(lens)).pose, lens);
    }
    const limit = matched.limit(camera), random = new Draws(matched.seed), sampled = new Int32Array(SAMPLE_SIZE);
    const poses = [];
    for (let sample = 0; sample < SAMPLES && rows.length >= SAMPLE_SIZE; sample++) {
        random.sample(rows.length, sampled);
        const { points, seen } = sights.take(sampled);
        const rays = Float64Array.from({ length: 9 }, (_, at) => {
            const x = seen[2 * Math.floor(at / 3)], y = seen[2 * Math.floor(at / 3) + 1];
            return [x, y, 1][at % 3] / Math.sqrt(x * x + y * y + 1);
        });
        for (const own of threePointPoses(rays, points)) {
            const cost = sights.residuals(declaredCamera(own)).reduce((sum, gap) => sum + Math.min(gap, limit), 0);
            poses.push({ pose: own, cost });
        }
    }
    poses.sort((a, b) => a.cost - b.cost);
    for (const { pose: own } of poses.slice(0, SAMPLED))
        add(own);
    return starts;
}
/** The pose whose view of the points' plane is tilted to the other side of the line of sight; null for too few points. */
export function mirrored(pose, sights) {
    if (sights.count <= MINIMAL_LINES)
        return null;
    const { middle, points } = sights, spread = new Float64Array(9);
    for (let at = 0; at < points.length; at += 3) {
        for (let i = 0; i < 3; i++) {
            for (let j = 0; j < 3; j++)
                spread[3 * i + j] += (points[at + i] - middle[i]) * (points[at + j] - middle[j]);
        }
    }
    const { vectors } = eigen(spread, 3), normal = times(pose.rotation, [vectors[0], vectors[3], vectors[6]]);
    const seen = times(pose.rotation, middle).map((value, i) => value + pose.translation[i]), length = Math.hypot(...seen);
    const sight = seen.map((value) => value / length), along = dot(sight, normal);
    let target = sight.map((value, i) => 2 * along * value - normal[i]);
    if (dot(target, normal) < 0)
        target = target.map((value) => -value);
    const [nx, ny, nz] = normal, [tx, ty, tz] = target;
    const cross = crossMatrix(ny * tz - nz * ty, nz * tx - nx * tz, nx * ty - ny * tx);
    const square = product(cross, cross), share = 1 / (1 + dot(normal, target));
    const turn = cross.map((value, at) => value + share * square[at] + (at % 4 === 0 ? 1 : 0));
    const shifted = times(turn, pose.translation.map((value, i) => value - seen[i]));
    return { rotation: product(turn, pose.rotation), translation: shifted.map((value, i) => value + seen[i]) };
}
function dot(a, b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}
/** Negative log likelihoods of optima, with the least noise of all of them. */
function costs(matched, optima) {
    const noises = optima.flatMap(({ fit, camera }) => {
        return fit !== null && Number.isFinite(fit.noise) ? [fit.noise * focalPx(camera)] : [];
    });
    const scale = LOSS_SIGMAS * Math.max(Math.min(...noises, noises.length > 0 ? Infinity : NOISE_FLOOR_PX), NOISE_FLOOR_PX);
    return optima.map((one) => {
        let sum = 0;
        for (const gap of matched.gaps(one))
            sum += Math.log1p((Math.min(gap * focalPx(one.camera), matched.maxErrorPx) / scale) ** 2);
        const shift = matched.logFocal(one) / deviationOf(matched.camera);
        return 0.5 * LOSS_SIGMAS ** 2 * sum + 0.5 * shift ** 2;
    });
}
/** Squared number of deviations of a step; each parameter counts in its own deviations, so that units do not matter. */
function squared(step, covariance) {
    const size = PARAMETERS, scale = Float64Array.from({ length: size }, (_, i) => Math.sqrt(covariance[8 * i]));
    if (scale.some((value) => value === 0))
        return Infinity;
    const own = step.map((value, i) => value / scale[i]);
    const scaled = covariance.map((value, at) => value / (scale[Math.floor(at / size)] * scale[at % size]));
    const { values, vectors } = eigen(scaled, size);
    const least = size * Number.EPSILON * Math.abs(values[size - 1]);
    let sum = 0;
    for (let j = 0; j < size; j++) {
        if (!(values[j] > least))
            continue;
        let along = 0;
        for (let i = 0; i < size; i++)
            along += vectors[size * i + j] * own[i];
        sum += along ** 2 / values[j];
    }
    return sum;
}
/**
 * The best optimum; its covariance is the second moment about it of all optima, each weighed by its likelihood.
 *
 * Where the pairs and the declared focal length disagree, the covariance grows by that factor along the focal length
 * (docs/theory/localization.md, Eq. 9).
 */
function spread(matched, best, others) {
    const fit = best.fit, own = fit.covariance;
    if (own === null)
        return { ...best, alone: fit };
    const moments = own.slice(), size = PARAMETERS, add = (row, weight) => {
        for (let i = 0; i < size; i++)
            for (let j = 0; j < size; j++)
                moments[size * i + j] += weight * row[i] * row[j];
    };
    let total = 1;
    const apart = apartBy(matched, best);
    if (apart > 1)
        add(own.slice(6 * size).map((value) => value / focalDeviation(fit)), apart ** 2 - 1);
    for (const { other, doubt } of others) {
        if (other.fit === null)
            continue;
        const step = Float64Array.of(...poseDifference(best.pose, other.pose), Math.log(focalPx(other.camera) / focalPx(best.camera)));
        if (squared(step, own) <= SAME_SQUARED + 2 * doubt)
            continue;
        const weight = Math.exp(-doubt);
        total += weight;
        for (let at = 0; at < moments.length; at++)
            moments[at] += weight * (other.fit.covariance?.[at] ?? Infinity);
        add(step, weight);
    }
    const covariance = moments.every(Number.isFinite) ? moments.map((value) => value / total) : null;
    return { ...best, fit: { ...fit, covariance }, alone: fit };
}
