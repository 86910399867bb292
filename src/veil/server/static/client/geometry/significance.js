/**
 * Number of false alarms (NFA) of a pose, with a background model taken from the query's own keypoints
 * (veil.geometry.robust.significance; docs/theory/localization.md, Eq. 1-3).
 */
/** Keypoints that differ by no more than this are one observation: SIFT repeats a place with several orientations. */
export const SAME_PX = 1;
export const P3P = { size: 3, poses: 4 };
/** With the focal length. */
export const P4PF = { size: 4, poses: 10 };
/** Places of the plane in square cells, to find those near another place. */
class Cells {
    side;
    #cells = new Map();
    constructor(side) {
        this.side = side;
    }
    #key(x, y) {
        return Math.floor(x / this.side) * 0x4000000 + Math.floor(y / this.side);
    }
    add(row, x, y) {
        const key = this.#key(x, y), cell = this.#cells.get(key);
        if (cell === undefined)
            this.#cells.set(key, [row]);
        else
            cell.push(row);
    }
    /** Call `visit` with the rows in the nine cells around a place until it returns true; whether it did. */
    around(x, y, visit) {
        const middle = this.#key(x, y);
        for (let across = -1; across <= 1; across++) {
            for (let down = -1; down <= 1; down++) {
                const cell = this.#cells.get(middle + across * 0x4000000 + down);
                if (cell !== undefined)
                    for (let i = 0; i < cell.length; i++)
                        if (visit(cell[i]) === true)
                            return true;
            }
        }
        return false;
    }
}
/** Whether each row of places (x, y pairs) lies farther than `same` from each row before it that does. */
export function apart(places, same) {
    const count = places.length / 2, kept = new Uint8Array(count), cells = new Cells(same);
    for (let row = 0; row < count; row++) {
        const x = places[2 * row], y = places[2 * row + 1];
        const isNear = cells.around(x, y, (other) => (places[2 * other] - x) ** 2 + (places[2 * other + 1] - y) ** 2 <= same * same);
        if (isNear)
            continue;
        kept[row] = 1;
        cells.add(row, x, y);
    }
    return kept;
}
/** Background model of keypoints: wrong matches are draws from the different places of the keypoints `xy`. */
export class PointBackground {
    limit;
    #xy;
    #cells;
    #placeOf;
    #count;
    /** `limit` is the inlier threshold, in the unit of `xy` (x, y pairs); keypoints within `SAME_PX` are one place. */
    constructor(xy, limit) {
        this.limit = limit;
        this.#xy = xy;
        this.#cells = new Cells(limit);
        const kept = apart(xy, SAME_PX), near = new Cells(SAME_PX);
        this.#count = kept.reduce((sum, value) => sum + value, 0);
        kept.forEach((isKept, row) => {
            if (!isKept)
                return;
            this.#cells.add(row, xy[2 * row], xy[2 * row + 1]);
            near.add(row, xy[2 * row], xy[2 * row + 1]);
        });
        this.#placeOf = Int32Array.from(kept, (_, row) => {
            let best = row, least = kept[row] ? 0 : Infinity;
            if (least > 0) {
                near.around(xy[2 * row], xy[2 * row + 1], (other) => {
                    const square = (xy[2 * other] - xy[2 * row]) ** 2 + (xy[2 * other + 1] - xy[2 * row + 1]) ** 2;
                    if (square < least)
                        [best, least] = [other, square];
                });
            }
            return best;
        });
    }
    /**
     * Share of all places within `part` (at most 1) times the limit of each projection, the place of keypoint `own[i]` left out.
     *
     * It is 0 for a projection that is NaN.
     */
    shares(projected, own, part = 1) {
        const shares = new Float64Array(own.length), square = (part * this.limit) ** 2, xy = this.#xy;
        for (let i = 0; i < own.length; i++) {
            const x = projected[2 * i], y = projected[2 * i + 1];
            if (!(Number.isFinite(x) && Number.isFinite(y)))
                continue;
            if (this.#count < 2) {
                shares[i] = 1;
                continue;
            }
            const mine = this.#placeOf[own[i]];
            let near = 0;
            this.#cells.around(x, y, (row) => {
                if (row !== mine && (xy[2 * row] - x) ** 2 + (xy[2 * row + 1] - y) ** 2 <= square)
                    near++;
            });
            shares[i] = near / (this.#count - 1);
        }
        return shares;
    }
}
/** Probability that a keypoint at a random place lies within `maxErrorPx` of a given one: pi t^2 / (w h). */
export function pointAgreement(camera, maxErrorPx) {
    return Math.min(1, (Math.PI * maxErrorPx ** 2) / (camera.widthPx * camera.heightPx));
}
/**
 * log10 of the number of false alarms of a pose, by its numbers of inliers and of matches (Moisan and Stival 2004, Eq. 6).
 *
 * Each of the C(n, s) samples gives up to `sampling.poses` poses, and of the other n - s matches a wrong one agrees with
 * probability `agreement`. Infinite for no more inliers than a sample.
 */
export function poseLog10Nfa(inliers, matches, agreement, sampling) {
    if (inliers <= sampling.size)
        return Infinity;
    const others = matches - sampling.size, agreeing = inliers - sampling.size;
    const chance = logBinomial(others, agreeing) + agreeing * Math.log(agreement);
    return poseLog10Samples(matches, sampling) + chance / Math.LN10;
}
/** log10 of the number of tests of a search: poses of samples of the matches, times numbers of inliers they may have. */
function poseLog10Samples(matches, sampling) {
    const others = Math.max(matches - sampling.size, 1);
    return (Math.log(sampling.poses * others) + logBinomial(Math.max(matches, sampling.size), sampling.size)) / Math.LN10;
}
const logFactorials = [0];
/** Natural logarithm of n!, summed up once for all smaller numbers. */
function logFactorial(n) {
    for (let at = logFactorials.length; at <= n; at++)
        logFactorials.push(logFactorials[at - 1] + Math.log(at));
    return logFactorials[n];
}
/** Natural logarithm of the binomial coefficient C(n, k). */
function logBinomial(n, k) {
    return logFactorial(n) - logFactorial(k) - logFactorial(n - k);
}
/** Probability of at least `more` heads in `more` + `less` throws of a fair coin. */
export function coin(more, less) {
    if (more <= 0)
        return 1;
    const count = more + less;
    let sum = 0;
    for (let heads = more; heads <= count; heads++)
        sum += Math.exp(logBinomial(count, heads) - count * Math.LN2);
    return Math.min(sum, 1);
}
