/** SHAKE-256 (FIPS 202), in 32-bit halves of its 64-bit lanes. */

const RATE = 136;
const ROUNDS = 24;
// Offsets of rho, and where pi puts each lane, in the order in which one lane follows the other (FIPS 202, 3.2.2 and 3.2.3).
const TURNS = new Uint8Array(24);
const PLACES = new Uint8Array(24);
// Round constants of iota as low and high halves (FIPS 202, 3.2.5).
const CONSTANTS = new Uint32Array(2 * ROUNDS);

for (let t = 0, x = 1, y = 0; t < 24; t++) {
  TURNS[t] = (((t + 1) * (t + 2)) / 2) % 64;
  [x, y] = [y, (2 * x + 3 * y) % 5];
  PLACES[t] = 2 * (x + 5 * y);
}
for (let round = 0, register = 1; round < ROUNDS; round++) {
  for (let j = 0; j < 7; j++) {
    const bit = (1 << j) - 1;
    if (register & 1) CONSTANTS[2 * round + (bit >> 5)]! |= 1 << (bit & 31);
    register = (register << 1) ^ (register & 0x80 ? 0x171 : 0);
  }
}

/** The first `length` bytes of the SHAKE-256 stream of some bytes. */
export function shake256(bytes: Uint8Array, length: number): Uint8Array {
  const state = new Uint32Array(50);
  const block = new Uint8Array(RATE);
  const view = new DataView(block.buffer);
  for (let at = 0; at <= bytes.length; at += RATE) {
    block.fill(0);
    const part = bytes.subarray(at, at + RATE);
    block.set(part);
    if (part.length < RATE) {
      block[part.length] = 0x1f;
      block[RATE - 1]! |= 0x80;
    }
    for (let i = 0; i < RATE / 4; i++) state[i] = state[i]! ^ view.getUint32(4 * i, true);
    permute(state);
  }
  const out = new Uint8Array(length);
  for (let at = 0; at < length; at += RATE) {
    if (at > 0) permute(state);
    for (let i = 0; i < RATE / 4; i++) view.setUint32(4 * i, state[i]!, true);
    out.set(block.subarray(0, Math.min(RATE, length - at)), at);
  }
  return out;
}

/** Keccak-f[1600] on 25 lanes, each a low and a high half. */
function permute(a: Uint32Array): void {
  const sums = new Uint32Array(10), row = new Uint32Array(10);
  for (let round = 0; round < ROUNDS; round++) {
    for (let i = 0; i < 10; i++) sums[i] = a[i]! ^ a[i + 10]! ^ a[i + 20]! ^ a[i + 30]! ^ a[i + 40]!;
    for (let x = 0; x < 5; x++) {
      const left = x > 0 ? 2 * x - 2 : 8, right = x < 4 ? 2 * x + 2 : 0;
      const low = sums[left]! ^ ((sums[right]! << 1) | (sums[right + 1]! >>> 31));
      const high = sums[left + 1]! ^ ((sums[right + 1]! << 1) | (sums[right]! >>> 31));
      for (let y = 0; y < 50; y += 10) {
        a[y + 2 * x] = a[y + 2 * x]! ^ low;
        a[y + 2 * x + 1] = a[y + 2 * x + 1]! ^ high;
      }
    }
    let low = a[2]!, high = a[3]!;
    for (let t = 0; t < 24; t++) {
      const place = PLACES[t]!, turn = TURNS[t]!;
      const nextLow = a[place]!, nextHigh = a[place + 1]!;
      if (turn >= 32) [low, high] = [high, low];
      const by = turn & 31;
      a[place] = by === 0 ? low : (low << by) | (high >>> (32 - by));
      a[place + 1] = by === 0 ? high : (high << by) | (low >>> (32 - by));
      low = nextLow;
      high = nextHigh;
    }
    for (let y = 0; y < 50; y += 10) {
      for (let x = 0; x < 10; x++) row[x] = a[y + x]!;
      for (let x = 0; x < 10; x++) {
        const next = x < 8 ? x + 2 : x - 8, after = x < 6 ? x + 4 : x - 6;
        a[y + x] = row[x]! ^ (~row[next]! & row[after]!);
      }
    }
    a[0] = a[0]! ^ CONSTANTS[2 * round]!;
    a[1] = a[1]! ^ CONSTANTS[2 * round + 1]!;
  }
}
