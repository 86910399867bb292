/** SHA-256 (FIPS 180-4), at once: WebCrypto's is asynchronous, and missing on pages that are not served over TLS. */
const K = new Uint32Array(64);
const START = new Uint32Array(8);
// First 32 bits of the fractional parts of cube and square roots of the first primes (FIPS 180-4, 4.2.2 and 5.3.3).
for (let candidate = 2, found = 0; found < 64; candidate++) {
    let isPrime = true;
    for (let d = 2; d * d <= candidate; d++)
        isPrime = isPrime && candidate % d !== 0;
    if (!isPrime)
        continue;
    K[found] = fraction(Math.cbrt(candidate));
    if (found < 8)
        START[found] = fraction(Math.sqrt(candidate));
    found++;
}
function fraction(value) {
    return Math.floor((value - Math.floor(value)) * 0x100000000);
}
/** The SHA-256 digest of some bytes. */
export function sha256(bytes) {
    const state = START.slice();
    const words = new Uint32Array(64);
    const whole = bytes.length - (bytes.length % 64);
    for (let at = 0; at < whole; at += 64)
        compress(state, words, bytes, at);
    const rest = bytes.length - whole;
    const tail = new Uint8Array(rest < 56 ? 64 : 128);
    tail.set(bytes.subarray(whole));
    tail[rest] = 0x80;
    const length = new DataView(tail.buffer);
    length.setUint32(tail.length - 8, Math.floor(bytes.length / 0x20000000));
    length.setUint32(tail.length - 4, (bytes.length << 3) >>> 0);
    for (let at = 0; at < tail.length; at += 64)
        compress(state, words, tail, at);
    const out = new DataView(new ArrayBuffer(32));
    state.forEach((word, index) => out.setUint32(4 * index, word));
    return new Uint8Array(out.buffer);
}
function compress(state, words, bytes, at) {
    for (let i = 0; i < 16; i++) {
        const j = at + 4 * i;
        words[i] = (bytes[j] << 24) | (bytes[j + 1] << 16) | (bytes[j + 2] << 8) | bytes[j + 3];
    }
    for (let i = 16; i < 64; i++) {
        const x = words[i - 15], y = words[i - 2];
        const small = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
        const large = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
        words[i] = words[i - 16] + small + words[i - 7] + large;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
        const upper = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
        const first = (h + upper + ((e & f) ^ (~e & g)) + K[i] + words[i]) | 0;
        const lower = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
        const second = (lower + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, index) => (state[index] = state[index] + value));
}
