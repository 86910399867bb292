/** The pose of a camera from three points and their rays (Grunert 1841; Haralick et al. 1991; veil.geometry.solvers.p3p). */

import type { Pose } from "./pose.js";

/**
 * Number of real roots of c0 + c1 x + ... + c4 x^4, which are written to the front of `roots`.
 *
 * They come from Ferrari's resolvent and two Newton steps; a leading coefficient that is zero beside the others gives none.
 */
export function quarticRoots(c: Float64Array, roots: Float64Array): number {
  if (Math.abs(c[4]!) < 1e-14 * (Math.abs(c[0]!) + Math.abs(c[1]!) + Math.abs(c[2]!) + Math.abs(c[3]!))) return 0;
  const b3 = c[3]! / c[4]!, b2 = c[2]! / c[4]!, b1 = c[1]! / c[4]!, b0 = c[0]! / c[4]!;
  // Depressed: y^4 + p y^2 + q y + r with x = y - b3 / 4.
  const p = b2 - (3 * b3 * b3) / 8, q = b1 - (b2 * b3) / 2 + b3 ** 3 / 8;
  const r = b0 - (b1 * b3) / 4 + (b2 * b3 * b3) / 16 - (3 * b3 ** 4) / 256;
  const z = Math.max(largestCubicRoot(2 * p, p * p - 4 * r, -q * q), 0), w = Math.sqrt(z);
  let count = 0;
  if (w < 1e-12) {
    // Biquadratic: y^2 = (-p +- sqrt(p^2 - 4 r)) / 2.
    const inner = p * p - 4 * r;
    if (inner < 0) return 0;
    for (const sign of [-1, 1]) {
      const square = (-p + sign * Math.sqrt(inner)) / 2;
      if (square >= 0) for (const other of [-1, 1]) roots[count++] = other * Math.sqrt(square) - b3 / 4;
    }
  } else {
    for (let sign = -1; sign <= 1; sign += 2) {
      // y^2 - sign w y + (p + z + sign q / w) / 2
      const inner = z - 2 * (p + z + (sign * q) / w);
      if (inner < 0) continue;
      for (let other = -1; other <= 1; other += 2) roots[count++] = (sign * w + other * Math.sqrt(inner)) / 2 - b3 / 4;
    }
  }
  for (let k = 0; k < count; k++) {
    for (let step = 0; step < 2; step++) {
      const x = roots[k]!, slope = ((4 * x + 3 * b3) * x + 2 * b2) * x + b1;
      if (Math.abs(slope) > 1e-300) roots[k] = x - ((((x + b3) * x + b2) * x + b1) * x + b0) / slope;
    }
  }
  return count;
}

/** Largest real root of x^3 + a x^2 + b x + c, after two Newton steps. */
function largestCubicRoot(a: number, b: number, c: number): number {
  const q = (a * a - 3 * b) / 9, r = (2 * a ** 3 - 9 * a * b + 27 * c) / 54;
  let x: number;
  if (r * r < q ** 3) {
    const root = Math.sqrt(q), angle = Math.acos(Math.max(-1, Math.min(1, r / Math.sqrt(q ** 3))));
    const at = (turn: number): number => -2 * root * Math.cos((angle + turn) / 3) - a / 3;
    x = Math.max(at(2 * Math.PI), at(0), at(-2 * Math.PI));
  } else {
    const size = (Math.abs(r) + Math.sqrt(Math.max(0, r * r - q ** 3))) ** (1 / 3), s = r < 0 || Object.is(r, -0) ? size : -size;
    x = s + (s !== 0 ? q / s : 0) - a / 3;
  }
  for (let step = 0; step < 2; step++) {
    const slope = (3 * x + 2 * a) * x + b;
    if (Math.abs(slope) > 1e-300) x -= (((x + a) * x + b) * x + c) / slope;
  }
  return x;
}

export const MAX_POSES = 4;
const quartic = new Float64Array(5), roots = new Float64Array(4), depths = new Float64Array(3);
const side1 = new Float64Array(3), side2 = new Float64Array(3), normal = new Float64Array(3);
const world = new Float64Array(9), camera = new Float64Array(9), seen = new Float64Array(9);

const dot = (a: Float64Array, i: number, b: Float64Array, j: number): number =>
  a[i]! * b[j]! + a[i + 1]! * b[j + 1]! + a[i + 2]! * b[j + 2]!;

function squaredDistance(a: Float64Array, i: number, j: number): number {
  return (a[i]! - a[j]!) ** 2 + (a[i + 1]! - a[j + 1]!) ** 2 + (a[i + 2]! - a[j + 2]!) ** 2;
}

/**
 * All poses with s_i rays_i = R points_i + t and s_i > 0; they are those of Python, in its order.
 *
 * Rows of `rays` (three of them) are unit vectors in the camera, rows of `points` lie in the world. With s_2 = u s_1 and
 * s_3 = v s_1 the law of cosines gives a quartic in v (Haralick et al. 1991, Eq. 9). Collinear or equal points give none.
 */
export function threePointPoses(rays: Float64Array, points: Float64Array): Pose[] {
  const a2 = squaredDistance(points, 3, 6), b2 = squaredDistance(points, 0, 6), c2 = squaredDistance(points, 0, 3);
  if (a2 < 1e-18 || b2 < 1e-18 || c2 < 1e-18 || isCollinear(points, b2 * c2)) return [];
  const cosA = dot(rays, 3, rays, 6), cosB = dot(rays, 0, rays, 6), cosC = dot(rays, 0, rays, 3);
  const p = (a2 - c2) / b2, q = (a2 + c2) / b2;
  quartic[4] = (p - 1) ** 2 - ((4 * c2) / b2) * cosA ** 2;
  quartic[3] = 4 * (p * (1 - p) * cosB - (1 - q) * cosA * cosC + ((2 * c2) / b2) * cosA ** 2 * cosB);
  quartic[2] =
    2 *
    (p ** 2 - 1 + 2 * p ** 2 * cosB ** 2 + ((2 * (b2 - c2)) / b2) * cosA ** 2 - 4 * q * cosA * cosB * cosC +
      ((2 * (b2 - a2)) / b2) * cosC ** 2);
  quartic[1] = 4 * (-p * (1 + p) * cosB + ((2 * a2) / b2) * cosC ** 2 * cosB - (1 - q) * cosA * cosC);
  quartic[0] = (1 + p) ** 2 - ((4 * a2) / b2) * cosC ** 2;
  const poses: Pose[] = [];
  for (let k = 0, count = quarticRoots(quartic, roots); k < count; k++) {
    const v = roots[k]!, below = 2 * (cosC - v * cosA), side = 1 + v * v - 2 * v * cosB;
    if (v <= 0 || Math.abs(below) < 1e-12 || side <= 0) continue;
    const u = ((p - 1) * v * v - 2 * p * cosB * v + 1 + p) / below;
    if (u <= 0) continue;
    depths[0] = Math.sqrt(b2 / side);
    depths[1] = u * depths[0]!;
    depths[2] = v * depths[0]!;
    const misfit = polishDepths(depths, a2, b2, c2, cosA, cosB, cosC);
    // Equal rays make any depths a double root of the quartic; its triangle is another one, or NaN.
    if (depths[0]! > 0 && depths[1]! > 0 && depths[2]! > 0 && misfit < 1e-6 * (a2 + b2 + c2)) {
      poses.push(rigidFromTriangles(points, rays));
    }
  }
  return poses;
}

function isCollinear(points: Float64Array, sides: number): boolean {
  for (let j = 0; j < 3; j++) {
    side1[j] = points[3 + j]! - points[j]!;
    side2[j] = points[6 + j]! - points[j]!;
  }
  cross(side1, 0, side2, 0, normal, 0);
  return dot(normal, 0, normal, 0) < 1e-12 * sides;
}

function cross(a: Float64Array, i: number, b: Float64Array, j: number, out: Float64Array, k: number): void {
  const x = a[i + 1]! * b[j + 2]! - a[i + 2]! * b[j + 1]!, y = a[i + 2]! * b[j]! - a[i]! * b[j + 2]!;
  out[k + 2] = a[i]! * b[j + 1]! - a[i + 1]! * b[j]!;
  out[k] = x;
  out[k + 1] = y;
}

/** Misfit of the three laws of cosines after two Newton steps that refine the depths in place. */
function polishDepths(s: Float64Array, a2: number, b2: number, c2: number, cosA: number, cosB: number, cosC: number): number {
  let misfit = 0;
  for (let step = 0; step < 3; step++) {
    const [s0, s1, s2] = [s[0]!, s[1]!, s[2]!];
    const f0 = s1 * s1 + s2 * s2 - 2 * s1 * s2 * cosA - a2;
    const f1 = s0 * s0 + s2 * s2 - 2 * s0 * s2 * cosB - b2;
    const f2 = s0 * s0 + s1 * s1 - 2 * s0 * s1 * cosC - c2;
    misfit = Math.abs(f0) + Math.abs(f1) + Math.abs(f2);
    if (step === 2) break;
    // Rows of the Jacobian: (0, j01, j02), (j10, 0, j12), (j20, j21, 0).
    const j01 = 2 * (s1 - s2 * cosA), j02 = 2 * (s2 - s1 * cosA), j10 = 2 * (s0 - s2 * cosB), j12 = 2 * (s2 - s0 * cosB);
    const j20 = 2 * (s0 - s1 * cosC), j21 = 2 * (s1 - s0 * cosC), determinant = j01 * j12 * j20 + j02 * j10 * j21;
    if (Math.abs(determinant) < 1e-300) break;
    s[0] = s0 - (-j12 * j21 * f0 + j02 * j21 * f1 + j01 * j12 * f2) / determinant;
    s[1] = s1 - (j12 * j20 * f0 - j02 * j20 * f1 + j02 * j10 * f2) / determinant;
    s[2] = s2 - (j10 * j21 * f0 + j01 * j20 * f1 - j01 * j10 * f2) / determinant;
  }
  return misfit;
}

/** The pose that takes the triangle of the points to that of depths times rays: both span an orthonormal frame. */
function rigidFromTriangles(points: Float64Array, rays: Float64Array): Pose {
  const rotation = new Float64Array(9), translation = new Float64Array(3);
  for (let i = 0; i < 9; i++) seen[i] = depths[Math.floor(i / 3)]! * rays[i]!;
  frame(points, world);
  frame(seen, camera);
  for (let i = 0; i < 3; i++) {
    for (let j = 0; j < 3; j++) {
      rotation[3 * i + j] = camera[i]! * world[j]! + camera[3 + i]! * world[3 + j]! + camera[6 + i]! * world[6 + j]!;
    }
    translation[i] = seen[i]! - dot(rotation, 3 * i, points, 0);
  }
  return { rotation, translation };
}

/** Write to the rows of `axes` the orthonormal frame of a triangle: first side, in its plane, normal. */
function frame(triangle: Float64Array, axes: Float64Array): void {
  for (let j = 0; j < 3; j++) {
    axes[j] = triangle[3 + j]! - triangle[j]!;
    axes[3 + j] = triangle[6 + j]! - triangle[j]!;
  }
  cross(axes, 0, axes, 3, axes, 6);
  normalize(axes, 0);
  normalize(axes, 6);
  cross(axes, 6, axes, 0, axes, 3);
}

function normalize(a: Float64Array, i: number): void {
  const length = Math.max(Math.sqrt(dot(a, i, a, i)), 1e-300);
  for (let j = i; j < i + 3; j++) a[j]! /= length;
}
