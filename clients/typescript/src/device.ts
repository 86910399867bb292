/** The releasing device: secret, ledger and budgets together, so that no release escapes the ledger by accident. */

import { hex } from "./bytes.js";
import { encode } from "./codec.js";
import { basicEpsilon, composedEpsilon } from "./composition.js";
import type { Dictionary } from "./dictionary.js";
import { sha256 } from "./digests.js";
import { SKETCH_BYTES } from "./differing_bits.js";
import { earlierDraws, sealedDraws } from "./drawn.js";
import { InputError, ReleaseRefused } from "./errors.js";
import { Ledger, type Made, shownBefore } from "./ledger.js";
import { SubsetMechanism } from "./mechanism.js";
import type { Upload, Vector } from "./message.js";
import { shortest } from "./numbers.js";
import { Secret, entropy } from "./randomness.js";
import { type Purpose, sketchDirections, sketched, withEarlierWords } from "./repeats.js";
import type { Entry, Held, SealedDraws, Store } from "./store.js";
import { type Image, type WordRelease, privatizeWords, taken } from "./words.js";

/** Protection that sends each descriptor as a random subset of a public dictionary's words (Pittaluga and Zhuang 2023). */
export interface HideInWords {
  /** Privacy loss of each feature, >= 0; it adds up over the image and all that is ever released. */
  epsilon: number;
  dictionary: Dictionary;
  /** Number of words sent for each feature; by default 2. */
  m?: number;
  /** Number of features that are sent, chosen at random; null (default): all. */
  featuresSent?: number | null;
  /** Delta of the image's epsilon; by default 1e-6. */
  delta?: number;
  /** Down in the camera frame (x right, y down, z forward), of any length, sent as measured; null (default): it is not sent. */
  gravity?: Vector | null;
  /** Accept a dictionary made from one's own photographs. */
  allowPrivateDictionary?: boolean;
}

/** One release of an image, entered in the ledger. */
export interface DeviceRelease {
  /** The bytes that may leave the device (`decode` reads them). */
  message: Uint8Array;
  /** Name of the release in the ledger. */
  releasedAs: string;
  /** The content of the message as a record. */
  upload: Upload;
  /** Epsilon of the whole image at the protection's delta, and the sum over its features, which holds with delta = 0. */
  imageEpsilon: number;
  basicEpsilon: number;
  /** Median distance of a descriptor to its true word; whoever learns the word knows the descriptor to about this. */
  medianError: number;
  /** `order[i]` is the row of the i-th released feature among the raw ones. */
  order: Uint32Array;
  /** Number of features that left with the words of an earlier release. */
  shownBefore: number;
  /** Sentences that the user should read. */
  notes: readonly string[];
}

const SUBSET_SIZE = 2, DELTA = 1e-6;
// Probability of being the true word above which a sent word is no longer hidden among others.
const MAX_POSTERIOR = 0.25;

/** A device that releases photographs under its secret and enters each release in its ledger first. */
export class Device {
  readonly ledger: Ledger;
  /** Whether the secret was made now: nothing that was released under a lost one can be repeated. */
  readonly isNew: boolean;
  readonly #secret: Secret;
  #directions: Float64Array | null = null;

  private constructor(secret: Secret, ledger: Ledger, isNew: boolean) {
    this.#secret = secret;
    this.ledger = ledger;
    this.isNew = isNew;
  }

  /**
   * The device whose secret and ledger a store keeps; both are made on first use.
   *
   * Raises ReleaseRefused if the secret is missing although the ledger has releases, or if there is no randomness to make one.
   */
  static async open(store: Store): Promise<Device> {
    const made = entropy();
    const { key, isNew } = await store.transact<{ key: Uint8Array; isNew: boolean }>((held) => {
      if (held.secret !== null) return { result: { key: held.secret, isNew: false } };
      if (held.entries.length > 0) {
        throw new ReleaseRefused(
          "the secret is lost, but not the ledger: under another one the same photographs would be released a second time. " +
            "Delete the whole store if nothing that it lists matters any more",
        );
      }
      return { result: { key: made, isNew: true }, secret: made };
    });
    return new Device(new Secret(key), new Ledger(store), isNew);
  }

  /** Eight hex digits that tell the secret apart and say nothing about it. */
  get fingerprint(): string {
    return this.#secret.fingerprint;
  }

  /**
   * Protect one image in words, enter the release in the ledger, and return it with the message that may leave.
   *
   * The same image and choices give the same bytes each time. `name` is for the ledger alone. With `purpose` "localize"
   * (default), features that left before leave again with their earlier words, of releases that were made so: it is for
   * queries, bursts and video (docs/theory/release.md#near-repeats). "map" draws for each image by itself, as maps need it. An
   * image that left before leaves as it did then, whatever is asked.
   *
   * Raises ReleaseRefused, and releases nothing, for a second, different release (unless `allowSecond`), beyond a budget, or
   * with words made from one's own images; InputError if features and choices do not fit; VeilError if what is kept is damaged.
   */
  async release(
    image: Image,
    protection: HideInWords,
    options: { name?: string; allowSecond?: boolean; purpose?: Purpose } = {},
  ): Promise<DeviceRelease> {
    const { dictionary, epsilon, m = SUBSET_SIZE, featuresSent = null, delta = DELTA } = protection;
    const mechanism = new SubsetMechanism({ dictionarySize: dictionary.size, epsilon, m });
    const gravity = protection.gravity ? checkedGravity(protection.gravity) : null;
    const allowPrivateDictionary = protection.allowPrivateDictionary ?? false;
    if (!allowPrivateDictionary) await this.#requirePublic(dictionary);
    const made = privatizeWords(
      image,
      { mechanism, dictionary, featuresSent, gravity, allowPrivateDictionary },
      this.#secret,
    );
    const positions = gravity === null ? "positions" : `positions gravity=${gravity.map(shortest).join(",")}`;
    const charges = [{ mechanism, features: made.order.length }];
    const imageEpsilon = composedEpsilon(charges, delta);
    const { allowSecond = false, name = "", purpose = "localize" } = options;
    const entered = await this.ledger.record(
      (held) => this.#beside(held, made, image, { name, positions, purpose }),
      { allowSecond },
    );
    return {
      message: entered.message,
      releasedAs: entered.entry.releasedAs,
      upload: entered.upload,
      imageEpsilon,
      basicEpsilon: basicEpsilon(charges),
      medianError: median(made.quantizationError),
      order: entered.order,
      shownBefore: shownBefore(entered.entry),
      notes: notes(mechanism, made.missing),
    };
  }

  /** A release beside what is held: its message, in which features that left before may have their earlier words. */
  #beside(
    held: Held,
    made: WordRelease,
    image: Image,
    { name, positions, purpose }: { name: string; positions: string; purpose: Purpose },
  ): Made & { message: Uint8Array; upload: Upload; order: Uint32Array } {
    const imageDigest = hex(image.digest);
    const left = held.entries.filter((entry) => entry.imageDigest === imageDigest);
    const leftAs = left.some((entry) => shownBefore(entry) > 0) ? "localize" : "map";
    const isAgain = (left.length > 0 ? leftAs : purpose) === "localize"; // the image leaves as it did then
    const { upload, order, draws } = isAgain ? this.#again(held.drawn, made, image) : { ...made, draws: null };
    const message = encode(upload), releasedAs = this.#secret.pseudonym(image.digest);
    const { dictionarySize, epsilon, m } = upload.form.mechanism;
    const entry: Entry = {
      imageDigest,
      messageDigest: hex(sha256(message)),
      releasedAs,
      name: name || releasedAs,
      parameters: `${made.parameters.text} secret=${this.fingerprint} ${positions}`,
      features: order.length,
      releasedAt: Date.now() / 1000,
      mechanism: { dictionarySize, epsilon, m },
      charged: draws === null ? order.length : draws.features,
    };
    return { entry, draws, message, upload, order };
  }

  /** A release with the earlier words of features that left before, and the words of the others, sealed. */
  #again(drawn: readonly SealedDraws[], { upload, order, parameters }: WordRelease, image: Image) {
    const imageDigest = hex(image.digest), kind = parameters.text, { form } = upload;
    this.#directions ??= sketchDirections(this.#secret);
    const sketches = sketched(taken(image.features.descriptors, order, 128), this.#directions);
    const earlier = earlierDraws(drawn, kind, imageDigest, this.#secret);
    const { rows, ids, isNew } = withEarlierWords(form, sketches, earlier);
    const places = Uint32Array.from(rows.keys()).filter((place) => isNew[place]);
    const added = {
      sketches: taken(sketches, taken(rows, places, 1), SKETCH_BYTES),
      ids: taken(ids, places, form.mechanism.m),
    };
    return {
      upload: { ...upload, keypoints: taken(upload.keypoints, rows, 2), form: { ...form, ids } },
      order: taken(order, rows, 1),
      draws: { imageDigest, kind, features: places.length, sealed: sealedDraws(added, this.#secret) },
    };
  }

  /** Raise ReleaseRefused if a dictionary was made from an image of the ledger. */
  async #requirePublic(dictionary: Dictionary): Promise<void> {
    const own = (await this.ledger.entries()).find((entry) => dictionary.wasMadeFrom(entry.imageDigest));
    if (own === undefined) return;
    throw new ReleaseRefused(
      `the dictionary was made from a photograph of your own (${own.name}): its words are all but its descriptors, which no ` +
        "epsilon covers; take one that was made from other photographs",
    );
  }
}

/** A direction of down scaled to unit length. Raises InputError for one that no camera has, such as one that points up. */
export function checkedGravity(direction: Vector): Vector {
  const length = Math.hypot(...direction);
  if (!Number.isFinite(length) || !(length > 1e-6)) {
    throw new InputError(`gravity must be a finite vector of some length, got ${direction.join(", ")}`);
  }
  const unit = direction.map((value) => value / length) as unknown as Vector;
  if (unit[1] < -0.5) {
    throw new InputError(
      "gravity points up in a camera frame whose y-axis points down; negate the readings (accelerometers at rest report the " +
        "reaction, which points up)",
    );
  }
  return unit;
}

function median(values: Float64Array): number {
  const sorted = values.slice().sort(), half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}

/** What the user should read of one release. */
function notes(mechanism: SubsetMechanism, missing: number): string[] {
  const said: string[] = [];
  if (!Number.isFinite(mechanism.epsilon)) {
    said.push(
      "warning: epsilon is infinite: the nearest word of each feature is sent for certain. This is no privacy; words can be " +
        "inverted into images almost like descriptors",
    );
  } else if (mechanism.posterior > MAX_POSTERIOR) {
    said.push("warning: a word that is sent is likely the true one; choose a smaller epsilon, or a larger dictionary");
  }
  if (missing > 0) {
    said.push(`note: the image has ${missing} features fewer than were asked for; their number tells how textured it is`);
  }
  return said;
}
