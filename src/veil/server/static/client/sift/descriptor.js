/** Descriptors: 4 x 4 histograms of 8 directions of the gradients around a keypoint (Lowe 2004, Sec. 6). */
const CELLS = 4;
const DIRECTIONS = 8;
/** Numbers of a descriptor. */
export const DESCRIPTOR_LENGTH = CELLS * CELLS * DIRECTIONS;
/** Side of a cell, in sigmas of the keypoint. */
const CELL_SIGMAS = 3;
/** Sigma of the Gaussian window, in cells. */
const WINDOW_CELLS = CELLS / 2;
/** Largest share of one direction in a descriptor of unit length. */
const MOST = 0.2;
const STEPS = 512;
/** The descriptor of a keypoint in one of its directions, of unit length, rows of cells from the top, as Lowe orders them. */
export function describe(one, angle, gradient) {
    const { width, height, lengths, angles } = gradient;
    const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
    const side = CELL_SIGMAS * one.sigma;
    const radius = Math.floor((Math.SQRT2 * side * (CELLS + 1)) / 2 + 0.5);
    const [centerX, centerY] = [Math.floor(one.x + 0.5), Math.floor(one.y + 0.5)];
    const histogram = new Float64Array(DESCRIPTOR_LENGTH);
    for (let y = Math.max(centerY - radius, 1); y <= Math.min(centerY + radius, height - 2); y += 1) {
        for (let x = Math.max(centerX - radius, 1); x <= Math.min(centerX + radius, width - 2); x += 1) {
            const [dx, dy] = [x - one.x, y - one.y];
            // In cells, along the keypoint's direction and across it, from the center of the descriptor.
            const along = (cosine * dx + sine * dy) / side;
            const across = (-sine * dx + cosine * dy) / side;
            if (Math.abs(along) >= CELLS / 2 + 0.5 || Math.abs(across) >= CELLS / 2 + 0.5) {
                continue;
            }
            const weight = Math.exp(-(along * along + across * across) / (2 * WINDOW_CELLS ** 2)) * lengths[y * width + x];
            let turn = angles[y * width + x] - angle;
            turn -= 2 * Math.PI * Math.floor(turn / (2 * Math.PI));
            spread(histogram, along + CELLS / 2 - 0.5, across + CELLS / 2 - 0.5, (DIRECTIONS * turn) / (2 * Math.PI), weight);
        }
    }
    return unit(unit(histogram).map((value) => Math.min(value, MOST)));
}
/** Share a weight among the cells and directions around a place, trilinearly. */
function spread(histogram, column, row, direction, weight) {
    const [left, top, first] = [Math.floor(column), Math.floor(row), Math.floor(direction)];
    const [right, bottom, second] = [column - left, row - top, direction - first];
    for (let y = Math.max(top, 0); y <= Math.min(top + 1, CELLS - 1); y += 1) {
        const inRow = weight * (y === top ? 1 - bottom : bottom);
        for (let x = Math.max(left, 0); x <= Math.min(left + 1, CELLS - 1); x += 1) {
            const inCell = inRow * (x === left ? 1 - right : right);
            const cell = DIRECTIONS * (CELLS * y + x);
            // COLMAP stores directions clockwise, as Lowe's program does: bin 0, then 7 down to 1.
            histogram[cell + ((2 * DIRECTIONS - first) % DIRECTIONS)] += inCell * (1 - second);
            histogram[cell + ((2 * DIRECTIONS - first - 1) % DIRECTIONS)] += inCell * second;
        }
    }
}
function unit(values) {
    const length = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
    return length > 0 ? values.map((value) => value / length) : values;
}
/** A descriptor as 8 bits: of unit length ("L2"), or the root of its shares ("L1_ROOT"), in steps of 1/512. */
export function quantize(histogram, normalization) {
    const sum = histogram.reduce((total, value) => total + value, 0);
    const scaled = normalization === "L2" || sum === 0 ? histogram : histogram.map((value) => Math.sqrt(value / sum));
    return Uint8Array.from(scaled, (value) => Math.min(Math.round(STEPS * value), 255));
}
