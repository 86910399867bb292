/** Directions and sizes in which images see points, which bound the cameras that could see them (veil.geometry.views). */
import { median } from "./linear.js";
import { centerOf } from "./pose.js";
import { diagonalPx, focalPx } from "./projection.js";
// Descriptors of one surface are no longer alike from directions this far apart, nor at sizes this many times apart.
const LEAST_COSINE = Math.cos((60 * Math.PI) / 180), MOST_ZOOM = 4;
/** Whether a camera at a pose could see each of the points `rows` as one of the map's images does, by direction and size. */
export function possible(views, camera, pose, points, rows) {
    const [cx, cy, cz] = centerOf(pose);
    const mask = new Uint8Array(rows.length), focal = focalPx(camera), diagonal = diagonalPx(camera);
    const { starts, direction, pixels, frames } = views;
    for (let i = 0; i < rows.length; i++) {
        const row = rows[i], x = cx - points[3 * row], y = cy - points[3 * row + 1], z = cz - points[3 * row + 2];
        const distance = Math.max(Math.sqrt(x * x + y * y + z * z), 1e-12), size = focal / distance, frame = size / diagonal;
        for (let k = starts[row]; k < starts[row + 1]; k++) {
            if (direction[3 * k] * x + direction[3 * k + 1] * y + direction[3 * k + 2] * z < LEAST_COSINE * distance)
                continue;
            const inPixels = size <= MOST_ZOOM * pixels[k] && pixels[k] <= MOST_ZOOM * size;
            if (inPixels || (frame <= MOST_ZOOM * frames[k] && frames[k] <= MOST_ZOOM * frame)) {
                mask[i] = 1;
                break;
            }
        }
    }
    return mask;
}
/**
 * Median ratio of the points' size in the picture to that in an image of the map, in diagonals of both; 1 without points.
 *
 * Each point counts with the image that shows it at the most similar size.
 */
export function magnification(views, camera, pose, points, rows) {
    const center = centerOf(pose), ratios = [];
    for (let i = 0; i < rows.length; i++) {
        const row = rows[i];
        const distance = Math.max(Math.hypot(...[0, 1, 2].map((axis) => center[axis] - points[3 * row + axis])), 1e-12);
        const own = Math.log(focalPx(camera) / distance / diagonalPx(camera));
        let best = Infinity;
        for (let k = views.starts[row]; k < views.starts[row + 1]; k++) {
            const ratio = own - Math.log(views.frames[k]);
            if (Math.abs(ratio) < Math.abs(best))
                best = ratio;
        }
        if (best !== Infinity)
            ratios.push(best);
    }
    return ratios.length > 0 ? Math.exp(median(ratios)) : 1;
}
