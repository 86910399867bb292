/**
 * Robust fit of a pose and the log of its focal length together, under the prior of the focal length, and their covariance
 * (veil.geometry.robust.pose_and_focal; docs/theory/localization.md#pose-and-focal-length-together).
 */

import { dampedStep, descended, type Sights } from "./free_calibration.js";
import { eigen, median } from "./linear.js";
import { type Pose, crossMatrix, moved, times } from "./pose.js";

/** Three of the turn, three of the shift, the log of the focal length. */
export const PARAMETERS = 7;
/** Scale of the Cauchy loss in standard deviations (Holland and Welsch 1977). */
export const LOSS_SIGMAS = 2.385;
const MEDIAN_OF_POINTS = 1.17741;
const NOISES = 8, ITERATIONS = 20, DAMPING = 1e-4, TOLERANCE = 1e-7;
const LEAST_OUTSIDE = 0.01, LEAST_SHARE = 0.1;

/** Normal law of the log of a focal length, as a ratio to that of the plane of the sights. */
export interface FocalLaw {
  mean: number;
  deviation: number;
}

/** A pose, the log ratio of its focal length to that of the plane of the sights, and how far both are known. */
export interface JointFit {
  pose: Pose;
  logFocal: number;
  /** Of rotation (radians), translation and log focal length, 7 x 7; null where the sights leave a parameter free. */
  covariance: Float64Array | null;
  /** Standard deviation of what was seen along each axis of the normalized plane. */
  noise: number;
}

/** Standard deviation of the log of the focal length; infinite where it is free. */
export const focalDeviation = (fit: JointFit): number => (fit.covariance === null ? Infinity : Math.sqrt(fit.covariance[48]!));

/** Standard deviation in radians of the rotation about its least certain axis; infinite where it exceeds half a turn. */
export function turnDeviation({ covariance }: JointFit): number {
  if (covariance === null) return Infinity;
  const turn = Float64Array.from({ length: 9 }, (_, at) => covariance[PARAMETERS * Math.floor(at / 3) + (at % 3)]!);
  const variance = eigen(turn, 3).values[2]!;
  return variance <= Math.PI ** 2 ? Math.sqrt(Math.max(variance, 0)) : Infinity;
}

/** A pose, and the log ratio of its focal length to that of the plane of the sights. */
export interface Zoomed {
  pose: Pose;
  logFocal: number;
}

/**
 * The pose and the focal length of least robust residuals and of the focal length's law, and their covariance.
 *
 * The loss is Cauchy's; its scale follows the noise, which is estimated anew from the median of the residuals.
 */
export function fitJointly(sights: Sights, start: Pose, law: FocalLaw, leastNoise: number): JointFit {
  const problem = new Problem(sights, law), least = LEAST_SHARE * leastNoise;
  let state: Zoomed = { pose: start, logFocal: 0 };
  for (let round = 0; round < NOISES; round++) {
    const noise = Math.max(problem.noise(state), least);
    if (!Number.isFinite(noise)) break;
    const before = state;
    state = problem.optimum(state, noise);
    if (Math.abs(problem.noise(state) / noise - 1) < 0.05 || state === before) break;
  }
  const influence = problem.influence(state, Math.max(problem.noise(state), least)), noise = Math.max(influence.noise, leastNoise);
  return { ...state, covariance: problem.covariance(state, influence, noise), noise };
}

interface Influence {
  loss: number;
  slope: number;
  noise: number;
}

class Problem {
  readonly #middle: Float64Array;
  /** Derivatives of all residuals (sights, 2, 7), and the residuals (sights, 2). */
  readonly #rows: Float64Array;
  readonly #gaps: Float64Array;

  constructor(readonly sights: Sights, readonly law: FocalLaw) {
    this.#middle = sights.middle;
    this.#rows = new Float64Array(2 * PARAMETERS * sights.count);
    this.#gaps = new Float64Array(2 * sights.count);
  }

  /** Squared distances of projections from what was seen; infinite behind the camera. */
  squares({ pose, logFocal }: Zoomed): Float64Array {
    const { rotation: r, translation: t } = pose, { points, seen, count } = this.sights;
    const zoom = Math.exp(logFocal), out = new Float64Array(count);
    for (let n = 0; n < count; n++) {
      const px = points[3 * n]!, py = points[3 * n + 1]!, pz = points[3 * n + 2]!;
      const z = t[2]! + r[6]! * px + r[7]! * py + r[8]! * pz;
      if (!(z > 1e-9)) {
        out[n] = Infinity;
        continue;
      }
      const x = (zoom * (t[0]! + r[0]! * px + r[1]! * py + r[2]! * pz)) / z - seen[2 * n]!;
      const y = (zoom * (t[1]! + r[3]! * px + r[4]! * py + r[5]! * pz)) / z - seen[2 * n + 1]!;
      out[n] = x * x + y * y;
    }
    return out;
  }

  noise(state: Zoomed): number {
    return Math.sqrt(median(this.squares(state))) / MEDIAN_OF_POINTS;
  }

  /** The influence of residuals with the loss for a noise; infinite noise where too few are left. */
  influence(state: Zoomed, noise: number): Influence {
    const loss = LOSS_SIGMAS * noise, squared = this.squares(state).map((value) => value / loss ** 2).filter(Number.isFinite);
    const freedoms = 2 * squared.length - PARAMETERS, count = squared.length;
    if (freedoms <= 0) return { loss, slope: 1, noise: Infinity };
    let psi = 0, slope = 0, variance = 0;
    // Derivative of each residual's influence: in the plane, the mean of those along its direction and across it.
    const slopes = squared.map((value) => 1 / (1 + value) ** 2);
    squared.forEach((value, n) => {
      psi += value * slopes[n]! * (loss ** 2 / freedoms);
      slope += slopes[n]! / count;
    });
    if (!(slope > 0)) return { loss, slope: 1, noise: Infinity };
    for (const value of slopes) variance += (value - slope) ** 2 / count;
    const few = 1 + ((PARAMETERS / (2 * count)) * variance) / slope ** 2;
    return { loss, slope, noise: (few * Math.sqrt(psi)) / slope };
  }

  /** Negative log likelihood of the residuals and of the focal length. */
  cost(state: Zoomed, noise: number): number {
    let sum = 0;
    for (const square of this.squares(state)) sum += Math.log1p(square / (LOSS_SIGMAS * noise) ** 2);
    return 0.5 * LOSS_SIGMAS ** 2 * sum + 0.5 * ((state.logFocal - this.law.mean) / this.law.deviation) ** 2;
  }

  /** The state of least cost that Levenberg and Marquardt's steps lead to; the same one if none lowers the cost. */
  optimum(start: Zoomed, noise: number): Zoomed {
    const stepsFrom = (state: Zoomed) => {
      const { normal, gradient } = this.#equations(state, noise);
      return (damping: number): Zoomed => {
        const step = dampedStep(normal, gradient, damping);
        const logFocal = state.logFocal + Math.min(Math.max(step[6]!, -0.5), 0.5);
        return { pose: moved(state.pose, this.#middle, step), logFocal };
      };
    };
    const limits = { damping: DAMPING, iterations: ITERATIONS, tolerance: TOLERANCE };
    return descended(start, (state) => this.cost(state, noise), stepsFrom, limits);
  }

  /** Normal matrix (7 x 7) and gradient of the cost. */
  #equations(state: Zoomed, noise: number): { normal: Float64Array; gradient: Float64Array } {
    this.#derive(state);
    const rows = this.#rows, gaps = this.#gaps, normal = new Float64Array(49), gradient = new Float64Array(PARAMETERS);
    for (let n = 0; n < this.sights.count; n++) {
      const square = gaps[2 * n]! ** 2 + gaps[2 * n + 1]! ** 2;
      const weight = 1 / (1 + square / (LOSS_SIGMAS * noise) ** 2) / noise ** 2;
      for (let axis = 2 * n; axis < 2 * n + 2; axis++) {
        const at = PARAMETERS * axis, gap = gaps[axis]!;
        for (let i = 0; i < PARAMETERS; i++) {
          const weighted = weight * rows[at + i]!;
          gradient[i]! += weighted * gap;
          for (let j = 0; j <= i; j++) normal[PARAMETERS * i + j]! += weighted * rows[at + j]!;
        }
      }
    }
    for (let i = 0; i < PARAMETERS; i++) for (let j = 0; j < i; j++) normal[PARAMETERS * j + i] = normal[PARAMETERS * i + j]!;
    normal[48]! += 1 / this.law.deviation ** 2;
    gradient[6]! += (state.logFocal - this.law.mean) / this.law.deviation ** 2;
    return { normal, gradient };
  }

  /** Write the residuals, and their derivatives by a turn about the middle, a shift and the log focal length; 0 behind. */
  #derive({ pose, logFocal }: Zoomed): void {
    const { rotation: r, translation: t } = pose, { points, seen, count } = this.sights, zoom = Math.exp(logFocal);
    const [mx, my, mz] = this.#middle as unknown as [number, number, number], rows = this.#rows, gaps = this.#gaps;
    const shift = times(r, this.#middle).map((value, i) => value + t[i]!);
    for (let n = 0; n < count; n++) {
      const px = points[3 * n]! - mx, py = points[3 * n + 1]! - my, pz = points[3 * n + 2]! - mz;
      const ax = r[0]! * px + r[1]! * py + r[2]! * pz, ay = r[3]! * px + r[4]! * py + r[5]! * pz;
      const az = r[6]! * px + r[7]! * py + r[8]! * pz, z = az + shift[2]!;
      if (!(z > 1e-9)) {
        rows.fill(0, 14 * n, 14 * n + 14);
        gaps.fill(0, 2 * n, 2 * n + 2);
        continue;
      }
      const inverse = zoom / z;
      for (let axis = 0; axis < 2; axis++) {
        const shown = ((axis === 0 ? ax : ay) + shift[axis]!) * inverse, at = 14 * n + 7 * axis;
        const bx = axis === 0 ? inverse : 0, by = axis === 0 ? 0 : inverse, bz = -shown / z;
        rows[at] = ay * bz - az * by;
        rows[at + 1] = az * bx - ax * bz;
        rows[at + 2] = ax * by - ay * bx;
        rows[at + 3] = bx;
        rows[at + 4] = by;
        rows[at + 5] = bz;
        rows[at + 6] = shown;
        gaps[2 * n + axis] = shown - seen[2 * n + axis]!;
      }
    }
  }

  /**
   * Covariance of (rotation, translation, log focal length); null where a parameter is free.
   *
   * Each residual counts as it would be without it in the fit (docs/theory/localization.md, Eq. 8). What a noise of `noise` has
   * more than the residuals show is added to each.
   */
  covariance(state: Zoomed, influence: Influence, noise: number): Float64Array | null {
    if (!Number.isFinite(noise)) return null;
    this.#derive(state);
    const count = this.sights.count, size = PARAMETERS, rows = this.#rows.map((value) => value / noise), gaps = this.#gaps;
    const squareOf = (n: number): number => gaps[2 * n]! ** 2 + gaps[2 * n + 1]! ** 2;
    const weights = Float64Array.from({ length: count }, (_, n) => 1 / (1 + squareOf(n) / influence.loss ** 2));
    const mean = weights.reduce((sum, value) => sum + value, 0) / count, plain = new Float64Array(49);
    for (let axis = 0; axis < 2 * count; axis++) {
      addOuter(plain, rows.subarray(size * axis, size * axis + size), weights[axis >> 1]! / mean);
    }
    const normal = plain.slice();
    normal[48]! += 1 / this.law.deviation ** 2;
    const scale = Float64Array.from({ length: size }, (_, i) => Math.sqrt(normal[8 * i]!));
    if (!scale.every((value) => value > 0 && value < Infinity)) return null;
    const { values, vectors } = eigen(normal.map((value, at) => value / (scale[Math.floor(at / size)]! * scale[at % size]!)), size);
    if (!(values[0]! > 1e-12)) return null;
    const root = vectors.map((value, at) => value / Math.sqrt(values[at % size]!) / scale[Math.floor(at / size)]!);
    const apart = new Float64Array(49), pull = new Float64Array(size);
    for (let n = 0; n < count; n++) {
      let leverage = 0;
      for (let axis = 2 * n; axis < 2 * n + 2; axis++) {
        for (let j = 0; j < size; j++) {
          let sum = 0;
          for (let i = 0; i < size; i++) sum += rows[size * axis + i]! * root[size * i + j]!;
          leverage += sum * sum;
        }
      }
      leverage *= weights[n]! / mean / 2;
      const outside = influence.slope * Math.max(1 - leverage, LEAST_OUTSIDE);
      pull.fill(0);
      for (let axis = 2 * n; axis < 2 * n + 2; axis++) {
        const push = (gaps[axis]! * weights[n]!) / (noise * outside);
        for (let i = 0; i < size; i++) pull[i]! += rows[size * axis + i]! * push;
      }
      addOuter(apart, pull, (2 * count) / (2 * count - size));
    }
    const missing = Math.max(1 - (influence.noise / noise) ** 2, 0), inner = apart.map((value, at) => value + missing * plain[at]!);
    inner[48]! += 1 / this.law.deviation ** 2;
    return sandwiched(this.#aboutZero(root, state), inner);
  }

  /** Inverse of the normal matrix, whose root is given, for a translation that a turn about the middle moves as well. */
  #aboutZero(root: Float64Array, state: Zoomed): Float64Array {
    const size = PARAMETERS, inverse = new Float64Array(49);
    for (let j = 0; j < size; j++) addOuter(inverse, Float64Array.from({ length: size }, (_, i) => root[size * i + j]!), 1);
    const [x, y, z] = times(state.pose.rotation, this.#middle) as unknown as [number, number, number], cross = crossMatrix(x, y, z);
    const turned = inverse.slice(0, 3 * size);
    for (let i = 0; i < 3; i++) {
      for (let j = 0; j < size; j++) {
        for (let k = 0; k < 3; k++) inverse[size * (3 + i) + j]! += cross[3 * i + k]! * turned[size * k + j]!;
      }
    }
    return inverse;
  }
}

function addOuter(matrix: Float64Array, row: Float64Array, weight: number): void {
  const size = row.length;
  for (let i = 0; i < size; i++) {
    const weighted = weight * row[i]!;
    for (let j = 0; j < size; j++) matrix[size * i + j]! += weighted * row[j]!;
  }
}

/** The product A B A^T of 7 x 7 matrices. */
function sandwiched(a: Float64Array, b: Float64Array): Float64Array {
  const size = PARAMETERS, once = new Float64Array(49), out = new Float64Array(49);
  for (let i = 0; i < size; i++) {
    for (let j = 0; j < size; j++) for (let k = 0; k < size; k++) once[size * i + j]! += a[size * i + k]! * b[size * k + j]!;
  }
  for (let i = 0; i < size; i++) {
    for (let j = 0; j < size; j++) for (let k = 0; k < size; k++) out[size * i + j]! += once[size * i + k]! * a[size * j + k]!;
  }
  return out;
}

/** The pose and log focal length of least robust residuals for a given noise, from a start; deviation 0 holds the focal length. */
export function refined(sights: Sights, pose: Pose, logFocal: number, deviation: number, noise: number): Zoomed {
  const law = { mean: logFocal, deviation: deviation > 0 ? deviation : 1e-9 };
  return new Problem(sights, law).optimum({ pose, logFocal }, noise);
}
