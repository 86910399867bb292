/** Messages of words as bytes, version 1 (docs/reference/wire.md): lengths are checked before anything is allocated. */

import { blake2b } from "./digests.js";
import { areEqual, concatenated, floatBytes, fromHex, hex, utf8, viewOf } from "./bytes.js";
import { InputError, WireError } from "./errors.js";
import {
  GRAVITY_BYTES,
  HEAD_BYTES,
  type Head,
  MAX_FEATURES,
  cameraAndSpace,
  gravityIsKnown,
  hasLines,
  hasWords,
  observationsOffset,
  packHead,
  payloadOffset,
  readHead,
  requireSpace,
} from "./head.js";
import { requireCrossing, requireInside, requirePlausible } from "./intrinsics.js";
import { SubsetMechanism } from "./mechanism.js";
import type { LineUpload, Lines, Message, Space, Subsets, Upload, Vector } from "./message.js";
import { shortest } from "./numbers.js";
import { packed, packedSizes, unpacked } from "./packing.js";

const CHECKSUM_BYTES = 16;
const DICTIONARY_BYTES = 32;
const MAX_UINT32 = 2 ** 32 - 1;
const MAX_M = 65535;
const MAX_IDS = 1 << 22; // of all features together
const MAX_NUMBERS = 1 << 20; // of a subspace's basis

/**
 * The bytes of a message of words of version 1.
 *
 * Raises InputError for what would not be read back: no features or too many, numbers that are not finite, ids that are not
 * ascending or outside the dictionary.
 */
export function encode(message: Message): Uint8Array {
  const { camera, form } = message;
  const { mechanism, space } = form;
  const features = form.ids.length / mechanism.m;
  if (!(features >= 1 && features <= MAX_FEATURES)) {
    throw new InputError(`an upload holds 1 to ${MAX_FEATURES} features, got ${features}; extract more or fewer`);
  }
  requireForm(form);
  requireSpace(space);
  requirePlausible(camera);
  requireObservations(message, features);
  const ids = packed(form.ids, { features, m: mechanism.m, dictionarySize: mechanism.dictionarySize });
  const own = new DataView(new ArrayBuffer(16));
  own.setUint32(0, mechanism.dictionarySize, true);
  own.setFloat64(4, Math.abs(mechanism.epsilon), true); // zero has one sign on the wire
  own.setUint32(12, ids.length, true);
  const gravity = message.kind === "lines" ? message.lines.gravity : message.gravity;
  const head = packHead({
    camera,
    space,
    features,
    m: mechanism.m,
    hasLines: message.kind === "lines",
    gravityIsKnown: gravity !== null,
    own: new Uint8Array(own.buffer),
  });
  const body = concatenated(head, floatBytes(camera.params, 8), observations(message), fromHex(form.dictionary), ids);
  return concatenated(body, checksum(body));
}

/** Bytes of gravity and positions, or of gravity, lines, and one bit for each line that says if it is aligned. */
function observations(message: Message): Uint8Array {
  if (message.kind === "positions") {
    return concatenated(floatBytes(message.gravity ?? [], 8), floatBytes(message.keypoints, 4));
  }
  const { coefficients, aligned, gravity } = message.lines;
  const bits = new Uint8Array(Math.ceil(aligned.length / 8));
  aligned.forEach((isAligned, i) => (bits[i >> 3]! |= isAligned ? 1 << (i & 7) : 0));
  return concatenated(floatBytes(gravity ?? [0, 0, 0], 8), floatBytes(coefficients, 4), bits);
}

/**
 * What a message of words holds.
 *
 * Raises WireError for anything that veil would not have written, and for subspaces, of which `readHead` reads the header.
 */
export function decode(message: Uint8Array): Message {
  if (message.length < HEAD_BYTES + CHECKSUM_BYTES) {
    throw new WireError(`the message is truncated: ${message.length} bytes are less than a header`);
  }
  const head = readHead(message);
  const length = messageLength(head);
  if (message.length !== length) {
    throw new WireError(
      `the message has ${message.length} bytes but its header asks for ${length}; transfer it again`,
    );
  }
  const end = message.length - CHECKSUM_BYTES;
  if (!areEqual(checksum(message.subarray(0, end)), message.subarray(end))) {
    throw new WireError("the checksum does not match: the message was damaged; transfer it again");
  }
  const { camera, space } = cameraAndSpace(message, head);
  if (!hasWords(head)) throw new WireError("the message is of subspaces; this client reads messages of words");
  try {
    const form = readForm(message, head, space);
    const decoded: Message = hasLines(head)
      ? { kind: "lines", camera, lines: readLines(message, head), form }
      : { kind: "positions", camera, ...readPositions(message, head), form };
    requireObservations(decoded, head.features);
    return decoded;
  } catch (error) {
    if (error instanceof InputError) throw new WireError(`the message holds impossible values: ${error.message}`);
    throw error;
  }
}

/** Length in bytes of the message that a header of any kind begins. Raises WireError for sizes that no message may have. */
export function messageLength(head: Head): number {
  return payloadOffset(head) + (hasWords(head) ? wordBytes(head) : subspaceBytes(head)) + CHECKSUM_BYTES;
}

function wordBytes(head: Head): number {
  const { mechanism, length } = readOwn(head);
  if (head.features * head.m > MAX_IDS) {
    throw new WireError(
      `the header asks for ${head.features} features of ${head.m} words; a message holds at most ${MAX_IDS} words: ` +
        "release fewer features or fewer words of each",
    );
  }
  const { least, most } = packedSizes({ features: head.features, m: head.m, dictionarySize: mechanism.dictionarySize });
  if (length < least || length > most) {
    throw new WireError(
      `${head.features} sets of ${head.m} out of ${mechanism.dictionarySize} words cannot take the header's ${length} bytes`,
    );
  }
  return DICTIONARY_BYTES + length;
}

function subspaceBytes(head: Head): number {
  if (!(head.m >= 1 && head.m < head.dim)) {
    throw new WireError(`the header asks for ${head.features} subspaces of dimension ${head.m} in ${head.dim}-D`);
  }
  if (head.m * head.dim > MAX_NUMBERS) {
    throw new WireError(
      `the header asks for bases of ${head.m} x ${head.dim} numbers; a message holds at most ${MAX_NUMBERS} in one: ` +
        "release with a smaller m",
    );
  }
  return head.itemBytes * head.features * head.dim * (head.m + 1);
}

/** Mechanism of a header of words, and its number of bytes of packed ids. Raises WireError for no mechanism. */
export function readOwn(head: Head): { mechanism: SubsetMechanism; length: number } {
  const own = viewOf(head.own);
  const epsilon = own.getFloat64(4, true);
  if (epsilon < 0 || Object.is(epsilon, -0)) {
    throw new WireError(`the header gives a negative epsilon: ${shortest(epsilon)}`);
  }
  try {
    const mechanism = new SubsetMechanism({ dictionarySize: own.getUint32(0, true), epsilon, m: head.m });
    return { mechanism, length: own.getUint32(12, true) };
  } catch (error) {
    if (error instanceof InputError) throw new WireError(`the header gives no mechanism: ${error.message}`);
    throw error;
  }
}

function readForm(message: Uint8Array, head: Head, space: Space): Subsets {
  const { mechanism, length } = readOwn(head);
  const start = payloadOffset(head), ids = start + DICTIONARY_BYTES;
  const shape = { features: head.features, m: head.m, dictionarySize: mechanism.dictionarySize };
  const form = {
    ids: unpacked(message.subarray(ids, ids + length), shape),
    mechanism,
    space,
    dictionary: hex(message.subarray(start, ids)),
  };
  requireForm(form);
  return form;
}

function readPositions(message: Uint8Array, head: Head): Pick<Upload, "keypoints" | "gravity"> {
  const start = observationsOffset(head), isKnown = gravityIsKnown(head);
  const gravity = isKnown ? readVector(message, start) : null;
  return { gravity, keypoints: readFloats(message, start + (isKnown ? GRAVITY_BYTES : 0), 2 * head.features) };
}

function readLines(message: Uint8Array, head: Head): Lines {
  const start = observationsOffset(head), isKnown = gravityIsKnown(head);
  // Bytes: -0.0 is not what encode writes either.
  if (!isKnown && message.subarray(start, start + GRAVITY_BYTES).some((byte) => byte !== 0)) {
    throw new WireError("gravity is given although the header says that it is not known");
  }
  const bits = message.subarray(start + GRAVITY_BYTES + 12 * head.features, payloadOffset(head));
  const isSet = (i: number): boolean => ((bits[i >> 3]! >> (i & 7)) & 1) === 1;
  for (let i = head.features; i < 8 * bits.length; i++) {
    if (isSet(i)) throw new WireError("bits are set behind the last line");
  }
  return {
    coefficients: readFloats(message, start + GRAVITY_BYTES, 3 * head.features),
    aligned: Array.from({ length: head.features }, (_, i) => isSet(i)),
    gravity: isKnown ? readVector(message, start) : null,
  };
}

function readFloats(message: Uint8Array, offset: number, count: number): Float32Array {
  const view = viewOf(message);
  return Float32Array.from({ length: count }, (_, i) => view.getFloat32(offset + 4 * i, true));
}

function readVector(message: Uint8Array, offset: number): Vector {
  const view = viewOf(message);
  return [view.getFloat64(offset, true), view.getFloat64(offset + 8, true), view.getFloat64(offset + 16, true)];
}

/** Raise InputError for ids that are no form, or that do not fit into a message. */
function requireForm({ ids, mechanism, dictionary }: Subsets): void {
  const { m, dictionarySize } = mechanism;
  if (ids.length % m !== 0) throw new InputError(`words must be ${m} for each feature, got ${ids.length} in all`);
  if (dictionarySize > MAX_UINT32 || m > MAX_M) {
    throw new InputError(
      `a message holds at most ${MAX_M} words a feature out of ${MAX_UINT32}, got ${m} out of ${dictionarySize}`,
    );
  }
  if (ids.length > MAX_IDS) {
    throw new InputError(`${ids.length} words make too long a message (at most ${MAX_IDS}); extract fewer features`);
  }
  for (let i = 0; i < ids.length; i++) {
    if (ids[i]! >= dictionarySize) {
      throw new InputError(`a word id lies outside the dictionary of ${dictionarySize} words`);
    }
    if (i % m !== 0 && ids[i]! <= ids[i - 1]!) {
      throw new InputError(
        "a feature's words must be distinct and in ascending order: another order gives the true one away",
      );
    }
  }
  if (!/^[0-9a-f]{64}$/.test(dictionary) || /^0*$/.test(dictionary)) {
    throw new InputError(
      `dictionary must be the SHA-256 (hex) of the codebook whose words these are, got '${dictionary}'`,
    );
  }
}

/** Raise InputError for positions or lines that an image of this camera cannot have. */
function requireObservations(message: Upload | LineUpload, features: number): void {
  if (message.kind === "positions") {
    if (message.keypoints.length !== 2 * features) {
      throw new InputError(`an upload needs one position a feature, got ${message.keypoints.length / 2} for ${features}`);
    }
    if (!message.keypoints.every(Number.isFinite)) throw new InputError("keypoint positions contain NaN or infinity");
    requireInside(message.camera, message.keypoints);
    requireUnit(message.gravity);
    return;
  }
  const { coefficients, aligned, gravity } = message.lines;
  if (coefficients.length !== 3 * features || aligned.length !== features) {
    throw new InputError(`an upload needs one line a feature, got ${coefficients.length / 3} for ${features}`);
  }
  for (let i = 0; i < coefficients.length; i += 3) {
    const [x, y, c] = coefficients.subarray(i, i + 3) as unknown as [number, number, number];
    const isBounded = Number.isFinite(c) && Math.abs(x) < 2 && Math.abs(y) < 2;
    if (!isBounded || !(Math.abs(Math.hypot(x, y) - 1) < 1e-4)) {
      throw new InputError("lines need finite coefficients with normals of unit length");
    }
  }
  if (gravity === null && aligned.includes(true)) {
    throw new InputError("lines cannot be aligned with a gravity that is not given");
  }
  requireUnit(gravity);
  requireCrossing(message.camera, coefficients);
}

function requireUnit(gravity: Vector | null): void {
  if (gravity === null) return;
  const isBounded = gravity.every((value) => Math.abs(value) < 2);
  if (!isBounded || !(Math.abs(Math.hypot(...gravity) - 1) < 1e-6)) throw new InputError("gravity must be a unit vector");
}

function checksum(body: Uint8Array): Uint8Array {
  return blake2b(body, { size: CHECKSUM_BYTES, person: utf8("veil wire v1") });
}
