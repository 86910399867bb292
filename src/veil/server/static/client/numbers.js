/** Numbers as Python writes them: what a release depends on, and what errors show, is spelled alike in both. */
import { InputError } from "./errors.js";
/** The shortest decimal that reads back as this double, as Python's `repr` spells it. */
export function shortest(value) {
    if (!Number.isFinite(value))
        return spelled(value);
    if (value === 0)
        return Object.is(value, -0) ? "-0.0" : "0.0";
    const [digits, exponent] = parts(Math.abs(value).toExponential());
    const sign = value < 0 ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        return sign + scientific(digits, exponent);
    const text = positional(digits, exponent);
    return sign + (text.includes(".") ? text : `${text}.0`);
}
/** A double with `precision` significant digits and without trailing zeros, as Python's format `g` spells it. */
export function general(value, precision = 6) {
    if (!Number.isFinite(value))
        return spelled(value);
    if (value === 0)
        return Object.is(value, -0) ? "-0" : "0";
    const [written, exponent] = parts(Math.abs(value).toExponential(precision - 1));
    const digits = written.replace(/0+$/, "");
    const sign = value < 0 ? "-" : "";
    return sign + (exponent < -4 || exponent >= precision ? scientific(digits, exponent) : positional(digits, exponent));
}
/**
 * A privacy loss, or an attack's probability of success, rounded up to `precision` significant digits: never less than what
 * was lost, and spelled as `outward` of veil.ldp.rounding does. All digits before the point are kept.
 *
 * Throws InputError unless the value is >= 0: NaN is no loss.
 */
export function outward(value, precision = 4) {
    return roundedUp(value, precision, 0);
}
/**
 * A probability as a number of percent, rounded up to `precision` significant digits, without the unit. The decimal point is
 * moved: 100 * 0.07 is 7.000000000000001 in binary.
 *
 * Throws InputError unless the value is >= 0.
 */
export function outwardPercent(share, precision = 3) {
    return roundedUp(share, precision, 2);
}
/** A value >= 0 times 10^moved, rounded up. */
function roundedUp(value, precision, moved) {
    if (!(value >= 0)) {
        throw new InputError(`a privacy loss or a probability is >= 0, got ${shortest(value)}; check the numbers it was computed from`);
    }
    if (value === Infinity)
        return "infinite";
    if (value === 0)
        return "0";
    const [digits, unmoved] = parts(value.toExponential());
    const exponent = unmoved + moved;
    const kept = Math.max(precision, exponent + 1);
    if (digits.length <= kept)
        return positional(digits, exponent);
    const up = String(BigInt(digits.slice(0, kept)) + 1n);
    return positional(up.replace(/0+$/, ""), exponent + (up.length - kept));
}
function spelled(value) {
    return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
/** Digits without a point, and the power of ten of the first one. */
function parts(exponential) {
    const [mantissa, exponent] = exponential.split("e");
    return [mantissa.replace(".", ""), Number(exponent)];
}
function scientific(digits, exponent) {
    const mantissa = digits.length > 1 ? `${digits[0]}.${digits.slice(1)}` : digits;
    return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}
function positional(digits, exponent) {
    if (exponent < 0)
        return `0.${"0".repeat(-exponent - 1)}${digits}`;
    const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
    const rest = digits.slice(exponent + 1);
    return rest ? `${whole}.${rest}` : whole;
}
/** The next double above a positive one. */
export function nextUp(value) {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, value);
    view.setBigUint64(0, view.getBigUint64(0) + 1n);
    return view.getFloat64(0);
}
/** A double as the fraction numerator / 2^shift, exactly. */
export function asFraction(value) {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, value);
    const bits = view.getBigUint64(0);
    const exponent = (bits >> 52n) & 0x7ffn;
    const fraction = bits & 0xfffffffffffffn;
    const mantissa = exponent === 0n ? fraction : fraction | (1n << 52n);
    const shift = 1075n - (exponent === 0n ? 1n : exponent);
    const numerator = bits >> 63n ? -mantissa : mantissa;
    return shift >= 0n ? { numerator, shift } : { numerator: numerator << -shift, shift: 0n };
}
