/**
 * Words of earlier releases as the store keeps them, sealed by the secret; the oldest are forgotten.
 *
 * The seal is that of Python's `veil.files.device.drawn`. It is for copies of what is kept: the secret lies in the same store.
 */

import { areEqual, concatenated, viewOf } from "./bytes.js";
import { SKETCH_BYTES } from "./differing_bits.js";
import { shake256 } from "./digests.js";
import { VeilError } from "./errors.js";
import { type Secret, entropy } from "./randomness.js";
import type { DrawnFeatures } from "./repeats.js";
import type { SealedDraws } from "./store.js";

/** Number of features that are remembered: some thirty releases, 4 MB. */
export const MOST_REMEMBERED = 50_000;
const NONCE = 16, TAG = 32;

/** Earlier releases with one more; the oldest are forgotten beyond `MOST_REMEMBERED` features. */
export function remembered(drawn: readonly SealedDraws[], next: SealedDraws): readonly SealedDraws[] {
  const all = [...drawn, next];
  let first = all.length - 1, total = next.features;
  while (first > 0 && total + all[first - 1]!.features <= MOST_REMEMBERED) total += all[--first]!.features;
  return all.slice(first);
}

/**
 * Words of a kind that were remembered before this image left first, oldest first.
 *
 * Its own and later ones are left out, so that the same image leaves again as it did. Raises VeilError for what another secret
 * sealed.
 */
export function earlierDraws(drawn: readonly SealedDraws[], kind: string, imageDigest: string, secret: Secret): DrawnFeatures {
  const same = drawn.filter((item) => item.kind === kind);
  const own = same.findIndex((item) => item.imageDigest === imageDigest);
  const opened = same.slice(0, own < 0 ? undefined : own).map((item) => openedDraws(item, secret));
  return {
    sketches: concatenated(...opened.map(({ sketches }) => sketches)),
    ids: Uint32Array.from(opened.flatMap(({ ids }) => [...ids])),
  };
}

/** Sketches and words as bytes that only who has the secret can read. */
export function sealedDraws({ sketches, ids }: DrawnFeatures, secret: Secret): Uint8Array {
  const view = new DataView(new ArrayBuffer(4 * ids.length));
  ids.forEach((id, i) => view.setUint32(4 * i, id, true));
  return sealed(concatenated(sketches, new Uint8Array(view.buffer)), secret, entropy().subarray(0, NONCE));
}

function openedDraws({ features, sealed }: SealedDraws, secret: Secret): DrawnFeatures {
  const content = opened(sealed, secret), end = features * SKETCH_BYTES;
  const view = viewOf(content.subarray(end));
  const ids = Uint32Array.from({ length: view.byteLength / 4 }, (_, i) => view.getUint32(4 * i, true));
  return { sketches: content.subarray(0, end), ids };
}

/** The nonce, the content under a stream that the secret and the nonce give, and a tag of both. No nonce may be used twice. */
export function sealed(content: Uint8Array, secret: Secret, nonce: Uint8Array): Uint8Array {
  const hidden = concatenated(nonce, underStream(content, nonce, secret));
  return concatenated(hidden, secret.keyed("veil drawn tag", hidden, TAG));
}

/** The content that was sealed. Raises VeilError if it was sealed by another secret, or damaged. */
export function opened(bytes: Uint8Array, secret: Secret): Uint8Array {
  const hidden = bytes.subarray(0, Math.max(0, bytes.length - TAG));
  if (!areEqual(secret.keyed("veil drawn tag", hidden, TAG), bytes.subarray(hidden.length))) {
    throw new VeilError(
      "words of earlier releases were not sealed by this secret, or are damaged; nothing was released. Bring back the whole " +
        'store from a copy, or release with purpose "map"',
    );
  }
  return underStream(hidden.subarray(NONCE), hidden.subarray(0, NONCE), secret);
}

function underStream(content: Uint8Array, nonce: Uint8Array, secret: Secret): Uint8Array {
  const stream = shake256(secret.keyed("veil drawn", nonce, 64), content.length);
  return stream.map((byte, i) => byte ^ content[i]!);
}
