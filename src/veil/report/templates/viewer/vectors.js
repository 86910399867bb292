/** Vectors of three numbers, and 4x4 matrices by columns as WebGL has them. */

export const plus = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
export const minus = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
export const scaled = (a, factor) => [a[0] * factor, a[1] * factor, a[2] * factor];
export const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
export const norm = (a) => Math.hypot(a[0], a[1], a[2]);
export const unit = (a) => scaled(a, 1 / (norm(a) || 1));

/** The value below which a share of the numbers lies. */
export function quantile(values, share) {
  const sorted = Float64Array.from(values).sort();
  return sorted.length === 0 ? 0 : sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

/** A matrix from world to clip coordinates, for an eye that looks along -behind; `shift` moves the middle, in clip units. */
export function clipFromWorld({ eye, right, top, behind }, focal, near, far, shift) {
  const depth = [(near + far) / (near - far), (2 * near * far) / (near - far)];
  const move = (axis) => -dot(axis, eye);
  const [x, y, z] = [[...right, move(right)], [...top, move(top)], [...behind, move(behind)]];
  const rows = [
    x.map((value, k) => focal[0] * value - shift[0] * z[k]),
    y.map((value, k) => focal[1] * value - shift[1] * z[k]),
    z.map((value, k) => depth[0] * value + (k === 3 ? depth[1] : 0)),
    z.map((value) => -value),
  ];
  return Float32Array.from([0, 1, 2, 3].flatMap((column) => rows.map((row) => row[column])));
}

/** Clip coordinates x, y and w of a place. */
export function projected(matrix, [x, y, z]) {
  const at = (row) => matrix[row] * x + matrix[row + 4] * y + matrix[row + 8] * z + matrix[row + 12];
  return [at(0), at(1), at(3)];
}
