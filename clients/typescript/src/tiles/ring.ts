/**
 * Polynomials modulo X^2048 + 1 and a prime q: the ring in which queries of the hintless exit are encrypted (docs/theory/pir.md).
 *
 * Products of polynomials are products of the values of their transforms (Longa and Naehrig 2016), which the client keeps in an
 * order of its own.
 */

import { concatenated, utf8, viewOf } from "../bytes.js";
import { shake256 } from "../digests.js";
import { randomBytes } from "./uniform.js";

export const MODULUS = 2_147_389_441, DEGREE = 2048; // q, 1 modulo 2^12 and just below 2^31; d
const GENERATOR = 11, BITS = 11, INVERSE = 1 / MODULUS;
const SPARE = 64; // integers that are expanded beyond those needed, as one in 20,000 is not below q

/** Coefficients or values of a transform, from 0 to q - 1. */
export type Residues = Int32Array;

/**
 * The product of two residues. The quotient by doubles is the right one or its neighbor; then the rest lies within 2,100 of a
 * residue, which 32 bits hold.
 */
function product(a: number, b: number): number {
  const rest = (Math.imul(a, b) - Math.imul((a * b * INVERSE) | 0, MODULUS)) | 0;
  return rest < 0 ? rest + MODULUS : rest >= MODULUS ? rest - MODULUS : rest;
}

function difference(a: number, b: number): number {
  const rest = (a - b) | 0;
  return rest < 0 ? rest + MODULUS : rest;
}

/** An integer within 2^53 of 0 modulo q. */
export function residue(value: number): number {
  const rest = value % MODULUS;
  return rest < 0 ? rest + MODULUS : rest;
}

function power(base: number, exponent: number): number {
  let out = 1;
  for (let left = exponent, square = base; left > 0; left = Math.floor(left / 2), square = product(square, square)) {
    if (left % 2) out = product(out, square);
  }
  return out;
}

/** Powers of a root of unity of order 2 d, their exponents with bits reversed. */
function powers(root: number): Residues {
  const out = new Int32Array(DEGREE);
  for (let place = 0, value = 1; place < DEGREE; place++, value = product(value, root)) {
    let turned = 0;
    for (let bit = 0; bit < BITS; bit++) turned |= ((place >> bit) & 1) << (BITS - 1 - bit);
    out[turned] = value;
  }
  return out;
}

const ROOT = power(GENERATOR, (MODULUS - 1) / (2 * DEGREE));
const FORTH = powers(ROOT), BACK = powers(power(ROOT, MODULUS - 2)), SHARE = power(DEGREE, MODULUS - 2);

/** The transform of a polynomial: its values at all roots of X^d + 1. */
export function transformed(polynomial: Residues): Residues {
  const out = polynomial.slice();
  for (let parts = 1, half = DEGREE / 2; half >= 1; parts *= 2, half /= 2) {
    for (let part = 0; part < parts; part++) {
      const root = FORTH[parts + part]!, end = (2 * part + 1) * half;
      for (let at = end - half; at < end; at++) {
        const left = out[at]!, right = product(out[at + half]!, root);
        out[at] = difference(left, MODULUS - right);
        out[at + half] = difference(left, right);
      }
    }
  }
  return out;
}

/** The product of two polynomials, given their transforms. */
export function multiplied(left: Residues, right: Residues): Residues {
  const out = left.map((value, at) => product(value, right[at]!));
  for (let parts = DEGREE / 2, half = 1; parts >= 1; parts /= 2, half *= 2) {
    for (let part = 0; part < parts; part++) {
      const root = BACK[parts + part]!, end = (2 * part + 1) * half;
      for (let at = end - half; at < end; at++) {
        const sum = out[at]!, other = out[at + half]!;
        out[at] = difference(sum, MODULUS - other);
        out[at + half] = product(difference(sum, other), root);
      }
    }
  }
  return out.map((value) => product(value, SHARE));
}

/** The polynomial at X^exponent, for an odd exponent modulo 2 d. */
export function automorphism(polynomial: Int32Array, exponent: number): Int32Array {
  const out = new Int32Array(DEGREE);
  polynomial.forEach((value, at) => {
    const place = (at * exponent) % (2 * DEGREE);
    out[place % DEGREE] = place < DEGREE ? value : -value;
  });
  return out;
}

/** Independent coefficients, uniform on -1, 0 and 1, from the platform's generator. */
export function ternary(): Int32Array {
  return Int32Array.from(randomBytes(DEGREE), (byte) => {
    let drawn = byte;
    while (drawn === 255) drawn = randomBytes(1)[0]!;
    return (drawn % 3) - 1;
  });
}

/** A public polynomial, expanded from a seed of 32 bytes (docs/reference/tiles.md#from-one-server-without-a-hint). */
export function expanded(domain: string, seed: Uint8Array, number: number): Residues {
  const input = concatenated(utf8(domain), seed, new Uint8Array(8));
  viewOf(input).setUint32(input.length - 8, number, true);
  for (let drawn = DEGREE + SPARE; ; drawn *= 2) {
    const stream = viewOf(shake256(input, 4 * drawn)), out = new Int32Array(DEGREE);
    for (let at = 0, kept = 0; at < drawn; at++) {
      const value = stream.getUint32(4 * at, true) & 0x7fff_ffff;
      if (value < MODULUS) out[kept++] = value;
      if (kept === DEGREE) return out;
    }
  }
}
