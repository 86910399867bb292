/** What a device keeps: its secret, the ledger of its releases, budgets, words that left, and what it sent. */

import type { Budget } from "./budget.js";
import type { MechanismParameters } from "./mechanism.js";

/** One release in the ledger, as Python's veil notes it. */
export interface Entry {
  /** Digests (hex) of the image, and of its message (SHA-256). */
  imageDigest: string;
  messageDigest: string;
  /** Name of the message, hex digits and dashes; only who has the secret can link it to the image. */
  releasedAs: string;
  /** The image's name, for the user. */
  name: string;
  /** What the release's draws depend on, `name=value` apart by blanks. */
  parameters: string;
  features: number;
  /** Seconds since 1970 (UTC). */
  releasedAt: number;
  mechanism: MechanismParameters;
  /** Number of features that words were drawn for anew; where it is missing, all. */
  charged?: number;
}

/** Words of the new features of one release, which later ones are compared with (docs/theory/release.md#near-repeats). */
export interface SealedDraws {
  imageDigest: string;
  /** What was chosen, as text: words of other choices are not compared. */
  kind: string;
  features: number;
  /** Sketches and words, for the secret's holder alone. */
  sealed: Uint8Array;
}

/** One message for one map of a server. */
export interface Sending {
  server: string;
  map: string;
  messageSha256: string;
  /** The very bytes while they wait; null once the server has acknowledged them. */
  message: Uint8Array | null;
  /** The server's name of it; empty while it waits. */
  contribution: string;
  /** End of the server's chain of receipts when it was acknowledged. */
  receiptsHead: string;
}

/** All that a store holds. */
export interface Held {
  secret: Uint8Array | null;
  entries: readonly Entry[];
  budgets: readonly Budget[];
  drawn: readonly SealedDraws[];
  sendings: readonly Sending[];
}

/** What a decision changes: a secret where there was none, one more entry, or lists that replace the former ones. */
export interface Change<T> {
  result: T;
  secret?: Uint8Array;
  entry?: Entry;
  budgets?: readonly Budget[];
  drawn?: readonly SealedDraws[];
  sendings?: readonly Sending[];
}

/** A place that survives the page, shared by all that use it. */
export interface Store {
  /**
   * Read everything, decide, and write what changes, so that nothing of another tab or task comes between.
   *
   * What `decide` throws is thrown, and nothing is written. The promise is fulfilled once the change is on disk.
   */
  transact<T>(decide: (held: Held) => Change<T>): Promise<T>;
}

/** A store in memory, for tests; with the page its secret is lost, and with it the memory of what was released. */
export class MemoryStore implements Store {
  #held: Held = { secret: null, entries: [], budgets: [], drawn: [], sendings: [] };

  async transact<T>(decide: (held: Held) => Change<T>): Promise<T> {
    const { result, entry, ...changed } = decide(structuredClone(this.#held));
    const entries = entry === undefined ? this.#held.entries : [...this.#held.entries, entry];
    this.#held = structuredClone({ ...this.#held, ...changed, entries });
    return result;
  }
}
