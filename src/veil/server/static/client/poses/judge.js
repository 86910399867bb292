/**
 * The answer to a query: a pose of its matches with points of a map, weighed by its evidence, or a reason for none
 * (veil.places.poses.judge; docs/theory/localization.md#one-camera-one-pose).
 */
import { turnDeviation } from "../geometry/pose_and_focal.js";
import { coin } from "../geometry/significance.js";
import { COIN, NESTED, PLACE_MARGIN, beyondChance, pictured, shownBy, weigh, } from "./evidence.js";
import { contradictedFocal, settled, solvedCamera } from "./joint.js";
import { RIVAL_PART } from "./matches.js";
const IMPOSSIBLE = "the best pose sees its points from sides, or at sizes, at which no image of the map saw them; is the query a photograph of a " +
    "photograph, or its focal length wrong?";
const AROUND = 6, RIVAL_ROOM = 4, MOST_RIVALS = 32;
const DEGREES = 180 / Math.PI;
export function refusal(reason, correspondences, inliers = 0, log10Nfa = Infinity) {
    return { status: "no pose", reason, correspondences, inliers, log10Nfa };
}
/** The answer that pairs give which match by distance. */
export function judgePairs(matched, views, limits) {
    const best = claimOf(matched, views, limits);
    return "status" in best ? best : judge(matched, best, views, limits);
}
/** The best pose of pairs that match by distance, or the reason why there is none. */
export function claimOf(matched, views, limits) {
    const { count } = matched;
    if (count < limits.minInliers)
        return refusal(`only ${count} features match the map; is it of this place?`, count);
    const best = bestPose(matched, views, limits);
    return best ?? refusal(`no pose explains the ${count} matches; is the map of this place?`, count);
}
/**
 * The answer to a query: its best pose, or the first reason to doubt it.
 *
 * A pose is told if chance does not explain it, a camera could have seen it, no other pose is as good, and it is well known.
 */
function judge(matched, claim, views, limits) {
    const { estimate, evidence } = claim, { count } = matched;
    const unchecked = beyondChance(evidence, limits) ? evidence : weigh(matched, estimate, null);
    const inliers = unchecked.rows.length, refused = (reason) => refusal(reason, count, inliers, unchecked.log10Nfa);
    if (!beyondChance(unchecked, limits)) {
        return refused(`the best pose has ${inliers} of ${count} matches as inliers, which chance also gives ` +
            `(log10 of expected chance poses ${unchecked.log10Nfa.toFixed(1)}); is the map of this place?`);
    }
    const known = estimate.fit !== null ? estimate : settled(matched, estimate), contradiction = contradictedFocal(matched, known);
    if (contradiction !== null)
        return refused(contradiction);
    if (unchecked !== evidence || pictured(matched, known, evidence, views))
        return refused(IMPOSSIBLE);
    const other = rival(matched, claim, views, limits);
    if (other !== null) {
        return refused(`two poses explain ${inliers} and ${other.evidence.rows.length} of ${count} matches, and nothing tells which is right; ` +
            "does the query show one thing several times, or several photographs?");
    }
    const vague = `the best pose is better than chance, but its ${inliers} inliers of ${count} matches leave it uncertain by degrees; show ` +
        "more of the place, extract more features, or map more images of it";
    if (known.fit === null || known.alone === null)
        return refused(vague);
    const aloneDeg = DEGREES * turnDeviation(known.alone), deviationDeg = DEGREES * turnDeviation(known.fit);
    const most = limits.maxTurnDeg;
    if (aloneDeg <= most && deviationDeg > most) {
        return refused(`two poses that differ by degrees (${Number(deviationDeg.toPrecision(2))} about the better one) fit the ${inliers} ` +
            `inliers of ${count} matches about as well; show more of the place, extract more features, or map more images of it`);
    }
    const { covariance } = known.fit;
    if (evidence.log10Nfa > limits.maxLog10Nfa - PLACE_MARGIN || deviationDeg > most || covariance === null)
        return refused(vague);
    return {
        status: "localized",
        camFromWorld: known.pose,
        camera: solvedCamera(matched, known),
        covariance: Float64Array.from({ length: 36 }, (_, at) => covariance[7 * Math.floor(at / 6) + (at % 6)]),
        turnDeviationDeg: deviationDeg,
        keypointRows: evidence.rows.map((row) => matched.keypointRows[row]),
        pointRows: evidence.rows.map((row) => matched.pointRows[row]),
        inliers: evidence.rows.length,
        correspondences: count,
        log10Nfa: evidence.log10Nfa,
    };
}
/**
 * Best pose and its evidence, or null if no pose was found.
 *
 * Where chance explains the pose of all pairs, the search is repeated among the most trusted ones, and the first pose beyond
 * chance is taken.
 */
function bestPose(matched, views, limits) {
    const best = weighed(matched, matched.estimate(), views);
    if (best !== null && beyondChance(best.evidence, limits))
        return best;
    for (const part of NESTED.slice(0, -1)) {
        const other = weighed(matched, matched.amongTrusted(part), views);
        if (other !== null && beyondChance(other.evidence, limits))
            return other;
    }
    return best;
}
/** A pose of the search after the fit of pose and focal length together, and its evidence. */
function weighed(matched, start, views) {
    if (start === null)
        return null;
    const estimate = settled(matched, start, matched.held());
    return { estimate, evidence: weigh(matched, estimate, views) };
}
/**
 * Another pose that is beyond chance as well and that nothing tells from the best one, or null.
 *
 * Each is sought among what the best pose and the others before it leave. If there are `MOST_RIVALS` of them, the last one
 * counts as nearly as strong.
 */
export function rival(matched, pose, views, limits) {
    const needed = Math.max(limits.minInliers, weakestRival(Math.floor(pose.evidence.rows.length / 2)));
    const shown = shownBy(matched, pose.estimate, views);
    let rest = unexplained(matched, Int32Array.from({ length: matched.count }, (_, row) => row), pose.estimate), worse = 0;
    while (mayHold(matched, rest, needed)) {
        const first = rest.subarray(0, Math.max(Math.round(RIVAL_PART * rest.length), RIVAL_ROOM * needed));
        const estimate = matched.estimate(first, needed / first.length);
        if (estimate === null)
            return null;
        const other = { estimate, evidence: weigh(matched, estimate, views) };
        if (!beyondChance(other.evidence, limits))
            return null;
        const isWorse = clearlyBetter(matched, pose.evidence, other.evidence, shown, shownBy(matched, estimate, views));
        if (!isWorse || worse + 1 === MOST_RIVALS)
            return other;
        worse++;
        const before = rest.length;
        rest = unexplained(matched, rest, estimate);
        if (rest.length === before)
            return null;
    }
    return null;
}
/** The pairs of `rest` that are not within twice the threshold of agreement with a pose. */
function unexplained(matched, rest, estimate) {
    const agreeing = new Set(matched.agreeing(matched.projected(estimate), 2, rest));
    return Int32Array.from(rest.filter((row) => !agreeing.has(row)));
}
/** Whether the pairs `rest` may hold a number of one-to-one inliers. */
function mayHold(matched, rest, inliers) {
    return rest.length >= inliers && new Set(rest.map((row) => matched.pointRows[row])).size >= inliers;
}
/**
 * Whether the first of two poses has clearly more inliers that count against the second (McNemar 1947).
 *
 * A feature that the other pose does not explain counts against it only if the map knows what its camera shows around the
 * feature, and the query shows nothing of that.
 */
function clearlyBetter(matched, first, second, shownFirst, shownSecond) {
    const more = counted(matched, first, second, shownFirst, shownSecond);
    return coin(more, counted(matched, second, first, shownSecond, shownFirst)) <= COIN;
}
function counted(matched, own, other, ownShown, otherShown) {
    const explained = new Set(other.rows), placeOf = new Map();
    ownShown.pointRows.forEach((row, i) => placeOf.set(row, i));
    const asked = [...own.rows].filter((row) => !explained.has(row) && placeOf.has(matched.pointRows[row]));
    if (asked.length === 0 || otherShown.pointRows.length === 0)
        return 0;
    const around = Math.ceil((AROUND * ownShown.pointRows.length) / Math.max(own.rows.length, 1));
    const seen = new Set(Array.from(other.rows, (row) => matched.pointRows[row]));
    const agreeing = otherShown.pointRows.map((row) => Number(seen.has(row))), { xy } = otherShown;
    let count = 0;
    for (const row of asked) {
        const place = placeOf.get(matched.pointRows[row]), x = ownShown.xy[2 * place], y = ownShown.xy[2 * place + 1];
        const squares = Float64Array.from(agreeing, (_, i) => (xy[2 * i] - x) ** 2 + (xy[2 * i + 1] - y) ** 2);
        const least = squares.reduce((most, square, i) => (agreeing[i] && square < most ? square : most), Infinity);
        const nearer = squares.reduce((sum, square) => sum + Number(square < least), 0);
        if (nearer >= Math.min(around, squares.length))
            count++;
    }
    return count;
}
/** Least number of inliers of another pose that the test of a fair coin does not tell from `inliers`. */
export function weakestRival(inliers) {
    let low = 0, high = inliers;
    while (low < high) {
        const middle = Math.floor((low + high) / 2);
        if (coin(inliers, middle) > COIN)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
