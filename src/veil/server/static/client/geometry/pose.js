/** Rigid motions from a map to a camera as flat arrays, and how a small step moves them (veil.geometry.rigid). */
/** Center of a pose's camera in the world. */
export function centerOf({ rotation: r, translation: t }) {
    return Float64Array.of(-(r[0] * t[0] + r[3] * t[1] + r[6] * t[2]), -(r[1] * t[0] + r[4] * t[1] + r[7] * t[2]), -(r[2] * t[0] + r[5] * t[1] + r[8] * t[2]));
}
/** Product of a 3 x 3 matrix and a vector. */
export function times(r, v) {
    return Float64Array.of(r[0] * v[0] + r[1] * v[1] + r[2] * v[2], r[3] * v[0] + r[4] * v[1] + r[5] * v[2], r[6] * v[0] + r[7] * v[1] + r[8] * v[2]);
}
/** Product of two 3 x 3 matrices. */
export function product(a, b) {
    const out = new Float64Array(9);
    for (let i = 0; i < 3; i++) {
        for (let j = 0; j < 3; j++)
            out[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
    }
    return out;
}
export function transposed(a) {
    return Float64Array.of(a[0], a[3], a[6], a[1], a[4], a[7], a[2], a[5], a[8]);
}
/** Matrix of the cross product with a vector. */
export function crossMatrix(x, y, z) {
    return Float64Array.of(0, -z, y, z, 0, -x, -y, x, 0);
}
/** Place of a point of the world in the camera frame. */
export function seenFrom({ rotation, translation }, point) {
    const seen = times(rotation, point);
    for (let i = 0; i < 3; i++)
        seen[i] += translation[i];
    return seen;
}
/** The pose after a turn exp([w]) about the point `middle` of the world, then a shift: a step (w, shift) in the camera frame. */
export function moved(pose, middle, step) {
    const [x, y, z] = [step[0], step[1], step[2]], angle = Math.sqrt(x * x + y * y + z * z);
    const first = angle > 0 ? Math.sin(angle) / angle : 1, second = angle > 0 ? 2 * (Math.sin(0.5 * angle) / angle) ** 2 : 0.5;
    const seen = seenFrom(pose, middle), cross = crossMatrix(x, y, z), once = product(cross, pose.rotation);
    const twice = product(cross, once), rotation = pose.rotation.map((value, i) => value + first * once[i] + second * twice[i]);
    const turned = times(rotation, middle);
    return { rotation, translation: Float64Array.from(seen, (value, i) => value + step[3 + i] - turned[i]) };
}
/** The turn (radians) and shift in the camera frame that take one pose to another (veil.geometry.rigid.pose_difference). */
export function poseDifference(first, second) {
    const turn = product(second.rotation, transposed(first.rotation));
    const axis = [turn[7] - turn[5], turn[2] - turn[6], turn[3] - turn[1]];
    const sine = Math.hypot(...axis) / 2, angle = Math.atan2(sine, (turn[0] + turn[4] + turn[8] - 1) / 2);
    const scale = sine > 1e-12 ? angle / (2 * sine) : 0.5, turned = axis.map((value) => value * scale);
    const from = centerOf(first), to = centerOf(second);
    const shift = times(first.rotation, from.map((value, i) => to[i] - value)).map((value) => -value);
    const around = times(crossMatrix(first.translation[0], first.translation[1], first.translation[2]), turned);
    return Float64Array.of(...turned, ...shift.map((value, i) => value - around[i]));
}
/** The angle of a rotation in degrees, accurate near 0. */
export function rotationAngleDeg(rotation) {
    const [x, y, z] = [rotation[7] - rotation[5], rotation[2] - rotation[6], rotation[3] - rotation[1]];
    return (Math.atan2(Math.hypot(x, y, z) / 2, (rotation[0] + rotation[4] + rotation[8] - 1) / 2) * 180) / Math.PI;
}
/** Covariance (3 x 3) of a camera's center in the world, from that (6 x 6) of rotation and translation in the camera frame. */
export function centerCovariance(pose, covariance) {
    const cross = crossMatrix(pose.translation[0], pose.translation[1], pose.translation[2]);
    const back = transposed(pose.rotation), left = product(back, cross), moved = new Float64Array(18), out = new Float64Array(9);
    for (let i = 0; i < 3; i++) {
        for (let j = 0; j < 3; j++) {
            moved[6 * i + j] = -left[3 * i + j];
            moved[6 * i + 3 + j] = -back[3 * i + j];
        }
    }
    for (let i = 0; i < 3; i++) {
        for (let j = 0; j < 3; j++) {
            for (let k = 0; k < 6; k++) {
                for (let l = 0; l < 6; l++)
                    out[3 * i + j] += moved[6 * i + k] * covariance[6 * k + l] * moved[6 * j + l];
            }
        }
    }
    return out;
}
