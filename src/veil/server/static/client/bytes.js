/** Bytes: texts, hex digits, concatenation, and arrays as little-endian bytes. */
import { InputError } from "./errors.js";
const encoder = new TextEncoder();
/** The bytes of a text in UTF-8. */
export function utf8(text) {
    return encoder.encode(text);
}
/** Bytes one after another. */
export function concatenated(...parts) {
    const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
        out.set(part, at);
        at += part.length;
    }
    return out;
}
/** Bytes as hex digits. */
export function hex(bytes) {
    let out = "";
    for (const byte of bytes)
        out += byte.toString(16).padStart(2, "0");
    return out;
}
/** The bytes of hex digits. Raises InputError for other text. */
export function fromHex(text) {
    if (!/^([0-9a-f]{2})*$/.test(text))
        throw new InputError(`expected hex digits, got '${text.slice(0, 80)}'`);
    return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}
/** Whether two arrays of bytes are equal; it stops at the first difference, so it is not for secrets. */
export function areEqual(a, b) {
    return a.length === b.length && a.every((value, index) => value === b[index]);
}
/** Bytes in base64. */
export function base64(bytes) {
    let text = "";
    for (let start = 0; start < bytes.length; start += 1 << 13) {
        text += String.fromCharCode(...bytes.subarray(start, start + (1 << 13)));
    }
    return btoa(text);
}
/** Floats as little-endian bytes, each of 4 or 8. */
export function floatBytes(values, size) {
    const out = new DataView(new ArrayBuffer(size * values.length));
    for (let i = 0; i < values.length; i++) {
        if (size === 4)
            out.setFloat32(4 * i, values[i], true);
        else
            out.setFloat64(8 * i, values[i], true);
    }
    return new Uint8Array(out.buffer);
}
/** A view of bytes for reading numbers. */
export function viewOf(bytes) {
    return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
