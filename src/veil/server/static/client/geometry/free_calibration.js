/**
 * Fit of a camera with free calibration to points that it saw: six numbers for the pose, five for the calibration
 * (veil.geometry.free_calibration). Coordinates are those of the declared camera's normalized plane.
 */
import { median, solved } from "./linear.js";
import { moved, times } from "./pose.js";
const ITERATIONS = 30, DAMPING = 1e-3, TOLERANCE = 1e-5, MOST_DAMPING = 1e6, SIZE = 11;
/** The state of least cost that Levenberg and Marquardt's steps lead to; the start itself if none lowers the cost. */
export function descended(start, costOf, stepsFrom, limits) {
    let state = start, cost = costOf(start), { damping } = limits, stepped = stepsFrom(start);
    for (let iteration = 0; iteration < limits.iterations; iteration++) {
        const tried = stepped(damping), fresh = costOf(tried);
        if (fresh < cost) {
            const isDone = cost - fresh <= limits.tolerance * cost;
            [state, cost] = [tried, fresh];
            damping /= 10;
            if (isDone)
                break;
            stepped = stepsFrom(state);
        }
        else {
            damping *= 10;
            if (damping > MOST_DAMPING)
                break;
        }
    }
    return state;
}
/** Levenberg and Marquardt's step; zero where the damped equations have no single solution. */
export function dampedStep(normal, gradient, damping) {
    const size = gradient.length, damped = normal.slice();
    for (let i = 0; i < size; i++)
        damped[i * size + i] += damping * (normal[i * size + i] + 1e-12);
    return solved(damped, gradient.map((value) => -value)) ?? new Float64Array(size);
}
/** The camera of a pose with the declared calibration. */
export const declaredCamera = (pose) => ({ pose, offsets: new Float64Array(5) });
/** Points of the world (triples) and where a camera saw them (pairs), in the declared camera's normalized plane. */
export class Sights {
    points;
    seen;
    constructor(points, seen) {
        this.points = points;
        this.seen = seen;
    }
    get count() {
        return this.seen.length / 2;
    }
    /** The sights at `rows`. */
    take(rows) {
        const points = new Float64Array(3 * rows.length), seen = new Float64Array(2 * rows.length);
        for (let to = 0; to < rows.length; to++) {
            const row = rows[to];
            for (let i = 0; i < 3; i++)
                points[3 * to + i] = this.points[3 * row + i];
            seen[2 * to] = this.seen[2 * row];
            seen[2 * to + 1] = this.seen[2 * row + 1];
        }
        return new Sights(points, seen);
    }
    /** Mean of the points. */
    get middle() {
        const middle = new Float64Array(3);
        for (let at = 0; at < this.points.length; at++)
            middle[at % 3] += this.points[at] / this.count;
        return middle;
    }
    /** Distance (normalized plane) of each projection to where its point was seen; infinite behind the camera. */
    residuals({ pose, offsets }) {
        const { rotation: r, translation: t } = pose, out = new Float64Array(this.count), { points, seen } = this;
        const wide = Math.exp(offsets[0] + offsets[3]), high = Math.exp(offsets[0] - offsets[3]);
        const [, across, down, , skew] = offsets;
        for (let n = 0; n < out.length; n++) {
            const px = points[3 * n], py = points[3 * n + 1], pz = points[3 * n + 2];
            const z = r[6] * px + r[7] * py + r[8] * pz + t[2];
            if (!(z > 1e-9)) {
                out[n] = Infinity;
                continue;
            }
            const x = (r[0] * px + r[1] * py + r[2] * pz + t[0]) / z, y = (r[3] * px + r[4] * py + r[5] * pz + t[1]) / z;
            const u = wide * x + skew * y + across - seen[2 * n], v = high * y + down - seen[2 * n + 1];
            out[n] = Math.sqrt(u * u + v * v);
        }
        return out;
    }
    /**
     * The camera of least robust residuals whose offsets lie between `least` and `most`.
     *
     * Levenberg-Marquardt from `start` on the pseudo-Huber loss at the median residual of the start; offsets at their bounds are
     * held.
     */
    fitted(start, most, least = most.map((value) => -value)) {
        const clipped = (offsets) => offsets.map((value, i) => Math.min(Math.max(value, least[i]), most[i]));
        const camera = { pose: start.pose, offsets: clipped(start.offsets) }, { middle } = this;
        const scale = Math.max(median(this.residuals(camera)), 1e-9);
        if (!Number.isFinite(scale))
            return camera;
        const stepsFrom = (state) => {
            const { normal, gradient } = this.#equations(state, middle, scale), { offsets } = state;
            const isHeld = (i) => i >= 6 &&
                ((offsets[i - 6] >= most[i - 6] && gradient[i] < 0) || (offsets[i - 6] <= least[i - 6] && gradient[i] > 0));
            const moving = Array.from({ length: SIZE }, (_, i) => i).filter((i) => !isHeld(i)), size = moving.length;
            const part = new Float64Array(size * size), right = new Float64Array(size);
            moving.forEach((i, row) => {
                right[row] = gradient[i];
                moving.forEach((j, column) => (part[row * size + column] = normal[i * SIZE + j]));
            });
            return (damping) => {
                const own = dampedStep(part, right, damping), step = new Float64Array(SIZE);
                moving.forEach((i, row) => (step[i] = own[row]));
                return { pose: moved(state.pose, middle, step), offsets: clipped(offsets.map((value, i) => value + step[6 + i])) };
            };
        };
        const costOf = (state) => {
            let sum = 0;
            for (const gap of this.residuals(state))
                sum += Math.sqrt(1 + (gap / scale) ** 2) - 1;
            return sum;
        };
        return descended(camera, costOf, stepsFrom, { damping: DAMPING, iterations: ITERATIONS, tolerance: TOLERANCE });
    }
    /** Normal matrix and gradient of one weighted step: turn about the point `middle`, shift, offsets (11 parameters). */
    #equations({ pose, offsets }, middle, scale) {
        const { rotation: r, translation: t } = pose, { points, seen, count } = this;
        const normal = new Float64Array(SIZE * SIZE), gradient = new Float64Array(SIZE);
        const rows = [new Float64Array(SIZE), new Float64Array(SIZE)];
        const shift = times(r, middle).map((value, i) => value + t[i]);
        const wide = Math.exp(offsets[0] + offsets[3]), high = Math.exp(offsets[0] - offsets[3]), skew = offsets[4];
        for (let n = 0; n < count; n++) {
            const px = points[3 * n] - middle[0], py = points[3 * n + 1] - middle[1], pz = points[3 * n + 2] - middle[2];
            const ax = r[0] * px + r[1] * py + r[2] * pz, ay = r[3] * px + r[4] * py + r[5] * pz;
            const az = r[6] * px + r[7] * py + r[8] * pz, depth = Math.max(az + shift[2], 1e-9);
            const x = (ax + shift[0]) / depth, y = (ay + shift[1]) / depth;
            const gaps = [wide * x + skew * y + offsets[1] - seen[2 * n], high * y + offsets[2] - seen[2 * n + 1]];
            const weight = 1 / Math.sqrt(1 + (gaps[0] ** 2 + gaps[1] ** 2) / scale ** 2);
            for (let axis = 0; axis < 2; axis++) {
                // By the place in camera coordinates, then by the turn (cross product with the arm), the shift and the offsets.
                const row = rows[axis], bx = axis === 0 ? wide / depth : 0, by = (axis === 0 ? skew : high) / depth;
                const bz = -(bx * x + by * y), gap = gaps[axis];
                row[0] = ay * bz - az * by;
                row[1] = az * bx - ax * bz;
                row[2] = ax * by - ay * bx;
                row[3] = bx;
                row[4] = by;
                row[5] = bz;
                row[6] = axis === 0 ? wide * x : high * y;
                row[7] = axis === 0 ? 1 : 0;
                row[8] = axis === 0 ? 0 : 1;
                row[9] = axis === 0 ? wide * x : -high * y;
                row[10] = axis === 0 ? y : 0;
                for (let i = 0; i < SIZE; i++) {
                    const weighted = weight * row[i];
                    gradient[i] += weighted * gap;
                    for (let j = 0; j <= i; j++)
                        normal[i * SIZE + j] += weighted * row[j];
                }
            }
        }
        for (let i = 0; i < SIZE; i++)
            for (let j = 0; j < i; j++)
                normal[j * SIZE + i] = normal[i * SIZE + j];
        return { normal, gradient };
    }
}
