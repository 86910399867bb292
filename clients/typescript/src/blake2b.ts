/** BLAKE2b (RFC 7693) with a key and a personalization, in 32-bit halves of its 64-bit words. */

import { InputError } from "./errors.js";

const BLOCK = 128;
const CARRY = 2 ** -32;
// Fractional parts of square roots of the first primes, as low and high halves (RFC 7693, 2.6).
const IV = new Uint32Array([
  0xf3bcc908, 0x6a09e667, 0x84caa73b, 0xbb67ae85, 0xfe94f82b, 0x3c6ef372, 0x5f1d36f1, 0xa54ff53a,
  0xade682d1, 0x510e527f, 0x2b3e6c1f, 0x9b05688c, 0xfb41bd6b, 0x1f83d9ab, 0x137e2179, 0x5be0cd19,
]);
// Message schedule (RFC 7693, 2.7), one row a round; rounds 10 and 11 are rows 0 and 1.
const SIGMA = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
  [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
  [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
  [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
  [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
  [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
const SCHEDULE = Uint8Array.from([...SIGMA, SIGMA[0]!, SIGMA[1]!].flat(), (word) => 2 * word);
// Columns, then diagonals, as indices of low halves in `v`.
const MIXED = Uint8Array.from(
  [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 5, 10, 15, 1, 6, 11, 12, 2, 7, 8, 13, 3, 4, 9, 14],
  (word) => 2 * word,
);

/** What a digest is made with: `size` in bytes (1 to 64), a key of at most 64 bytes, a personalization of at most 16. */
export interface Blake2bOptions {
  size?: number;
  key?: Uint8Array;
  person?: Uint8Array;
}

/** A digest that is computed of bytes as they come. */
export class Blake2b {
  private readonly state = new Uint32Array(16);
  private readonly block = new Uint8Array(BLOCK);
  private readonly words = new Uint32Array(32);
  private readonly v = new Uint32Array(32);
  private readonly view = new DataView(this.block.buffer);
  private readonly size: number;
  private filled = 0;
  private counted = 0;

  /** Raises InputError for options that BLAKE2b does not have. */
  constructor(options: Blake2bOptions = {}) {
    const { size = 64, key = new Uint8Array(0), person = new Uint8Array(0) } = options;
    if (!(size >= 1 && size <= 64) || key.length > 64 || person.length > 16) {
      throw new InputError("BLAKE2b has digests of 1 to 64 bytes, keys of at most 64 and personalizations of at most 16");
    }
    this.size = size;
    const parameters = new DataView(new ArrayBuffer(64));
    parameters.setUint32(0, size | (key.length << 8) | (1 << 16) | (1 << 24), true);
    new Uint8Array(parameters.buffer).set(person, 48);
    for (let i = 0; i < 16; i++) this.state[i] = IV[i]! ^ parameters.getUint32(4 * i, true);
    if (key.length > 0) {
      this.update(key);
      this.filled = BLOCK;
    }
  }

  /** Take in more bytes; returns itself. */
  update(bytes: Uint8Array): this {
    for (let at = 0; at < bytes.length; ) {
      if (this.filled === BLOCK) {
        this.compress(false);
        this.filled = 0;
        this.block.fill(0);
      }
      const part = bytes.subarray(at, at + BLOCK - this.filled);
      this.block.set(part, this.filled);
      this.filled += part.length;
      at += part.length;
    }
    return this;
  }

  /** The digest of the bytes so far; more can be taken in after it. */
  digest(): Uint8Array {
    const state = this.state.slice(), counted = this.counted;
    this.compress(true);
    const out = new DataView(new ArrayBuffer(64));
    for (let i = 0; i < 16; i++) out.setUint32(4 * i, this.state[i]!, true);
    this.state.set(state);
    this.counted = counted;
    return new Uint8Array(out.buffer, 0, this.size);
  }

  private compress(isLast: boolean): void {
    const { state, words, v, view } = this;
    this.counted += this.filled;
    for (let i = 0; i < 32; i++) words[i] = view.getUint32(4 * i, true);
    v.set(state);
    v.set(IV, 16);
    v[24] = v[24]! ^ (this.counted >>> 0);
    v[25] = v[25]! ^ Math.floor(this.counted / 2 ** 32);
    if (isLast) {
      v[28] = ~v[28]!;
      v[29] = ~v[29]!;
    }
    for (let round = 0; round < 12; round++) {
      for (let i = 0; i < 8; i++) mix(v, words, 4 * i, SCHEDULE[16 * round + 2 * i]!, SCHEDULE[16 * round + 2 * i + 1]!);
    }
    for (let i = 0; i < 16; i++) state[i] = state[i]! ^ v[i]! ^ v[i + 16]!;
  }
}

/** The mixing function G (RFC 7693, 3.1) of the four words that start at `MIXED[at]`, with message words `x` and `y`. */
function mix(v: Uint32Array, words: Uint32Array, at: number, x: number, y: number): void {
  const a = MIXED[at]!, b = MIXED[at + 1]!, c = MIXED[at + 2]!, d = MIXED[at + 3]!;
  let low = v[a]! + v[b]! + words[x]!;
  let aHigh = (v[a + 1]! + v[b + 1]! + words[x + 1]! + ((low * CARRY) | 0)) >>> 0;
  let aLow = low >>> 0;
  let dLow = v[d + 1]! ^ aHigh, dHigh = v[d]! ^ aLow; // rotated by 32 bits
  low = v[c]! + (dLow >>> 0);
  let cHigh = (v[c + 1]! + (dHigh >>> 0) + (low > 0xffffffff ? 1 : 0)) >>> 0;
  let cLow = low >>> 0;
  let xLow = v[b]! ^ cLow, xHigh = v[b + 1]! ^ cHigh;
  let bLow = ((xLow >>> 24) | (xHigh << 8)) >>> 0, bHigh = ((xHigh >>> 24) | (xLow << 8)) >>> 0;
  low = aLow + bLow + words[y]!;
  aHigh = (aHigh + bHigh + words[y + 1]! + ((low * CARRY) | 0)) >>> 0;
  aLow = low >>> 0;
  xLow = dLow ^ aLow;
  xHigh = dHigh ^ aHigh;
  dLow = ((xLow >>> 16) | (xHigh << 16)) >>> 0;
  dHigh = ((xHigh >>> 16) | (xLow << 16)) >>> 0;
  low = cLow + dLow;
  cHigh = (cHigh + dHigh + (low > 0xffffffff ? 1 : 0)) >>> 0;
  cLow = low >>> 0;
  xLow = bLow ^ cLow;
  xHigh = bHigh ^ cHigh;
  bLow = (xHigh >>> 31) | (xLow << 1);
  bHigh = (xLow >>> 31) | (xHigh << 1);
  v[a] = aLow; v[a + 1] = aHigh;
  v[b] = bLow; v[b + 1] = bHigh;
  v[c] = cLow; v[c + 1] = cHigh;
  v[d] = dLow; v[d + 1] = dHigh;
}

/** The BLAKE2b digest of some bytes. */
export function blake2b(bytes: Uint8Array, options: Blake2bOptions = {}): Uint8Array {
  return new Blake2b(options).update(bytes).digest();
}
