/** Small dense linear algebra: equations, and eigenvalues of symmetric matrices. Matrices are flat, row by row. */

/** Solution of `matrix` x = `right` by elimination with partial pivots; null where there is no single one. */
export function solved(matrix: Float64Array, right: Float64Array): Float64Array | null {
  const size = right.length, a = matrix.slice(), x = right.slice();
  for (let column = 0; column < size; column++) {
    let pivot = column;
    for (let row = column + 1; row < size; row++) {
      if (Math.abs(a[row * size + column]!) > Math.abs(a[pivot * size + column]!)) pivot = row;
    }
    const value = a[pivot * size + column]!;
    if (!(Math.abs(value) > 0 && Math.abs(value) < Infinity)) return null;
    if (pivot !== column) {
      for (let i = column; i < size; i++) {
        [a[column * size + i], a[pivot * size + i]] = [a[pivot * size + i]!, a[column * size + i]!];
      }
      [x[column], x[pivot]] = [x[pivot]!, x[column]!];
    }
    for (let row = column + 1; row < size; row++) {
      const factor = a[row * size + column]! / value;
      if (factor === 0) continue;
      for (let i = column; i < size; i++) a[row * size + i]! -= factor * a[column * size + i]!;
      x[row]! -= factor * x[column]!;
    }
  }
  for (let row = size - 1; row >= 0; row--) {
    let sum = x[row]!;
    for (let i = row + 1; i < size; i++) sum -= a[row * size + i]! * x[i]!;
    x[row] = sum / a[row * size + row]!;
  }
  return x;
}

/** Eigenvalues of a symmetric matrix, ascending, and unit eigenvectors as columns of `vectors`. */
export interface Eigen {
  values: Float64Array;
  vectors: Float64Array;
}

const SWEEPS = 60;

/** Eigenvalues and eigenvectors of a symmetric matrix by Jacobi's rotations (Golub and Van Loan 2013, Alg. 8.5.2). */
export function eigen(symmetric: Float64Array, size: number): Eigen {
  const a = symmetric.slice(), v = new Float64Array(size * size);
  for (let i = 0; i < size; i++) v[i * size + i] = 1;
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    let off = 0, all = 0;
    for (let p = 0; p < size; p++) {
      for (let q = 0; q < size; q++) {
        const square = a[p * size + q]! ** 2;
        all += square;
        if (p !== q) off += square;
      }
    }
    if (!(off > 1e-32 * all)) break;
    for (let p = 0; p < size; p++) for (let q = p + 1; q < size; q++) rotate(a, v, size, p, q);
  }
  const order = Array.from({ length: size }, (_, i) => i).sort((i, j) => a[i * size + i]! - a[j * size + j]!);
  const vectors = new Float64Array(size * size);
  order.forEach((from, to) => {
    for (let i = 0; i < size; i++) vectors[i * size + to] = v[i * size + from]!;
  });
  return { values: Float64Array.from(order, (i) => a[i * size + i]!), vectors };
}

function rotate(a: Float64Array, v: Float64Array, size: number, p: number, q: number): void {
  const apq = a[p * size + q]!;
  if (apq === 0) return;
  const ratio = (a[q * size + q]! - a[p * size + p]!) / (2 * apq);
  const tangent = Math.sign(ratio || 1) / (Math.abs(ratio) + Math.sqrt(1 + ratio * ratio));
  const cosine = 1 / Math.sqrt(1 + tangent * tangent), sine = tangent * cosine;
  for (let i = 0; i < size; i++) {
    const ip = a[i * size + p]!, iq = a[i * size + q]!;
    a[i * size + p] = cosine * ip - sine * iq;
    a[i * size + q] = sine * ip + cosine * iq;
  }
  for (let i = 0; i < size; i++) {
    const pi = a[p * size + i]!, qi = a[q * size + i]!;
    a[p * size + i] = cosine * pi - sine * qi;
    a[q * size + i] = sine * pi + cosine * qi;
    const vp = v[i * size + p]!, vq = v[i * size + q]!;
    v[i * size + p] = cosine * vp - sine * vq;
    v[i * size + q] = sine * vp + cosine * vq;
  }
}

/** Median of some numbers, infinite ones among them; NaN of none. */
export function median(values: ArrayLike<number>): number {
  const sorted = Float64Array.from(values).sort(), middle = sorted.length >> 1;
  if (sorted.length === 0) return NaN;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** A percentile (0 to 100) of some numbers, interpolated linearly as NumPy does. */
export function percentile(values: ArrayLike<number>, percent: number): number {
  const sorted = Float64Array.from(values).sort(), at = (percent / 100) * (sorted.length - 1), low = Math.floor(at);
  const next = sorted[Math.min(low + 1, sorted.length - 1)]!;
  return sorted[low]! + (at - low) * (next - sorted[low]!);
}
