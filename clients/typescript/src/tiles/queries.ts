/** Encrypted queries to one server, and the secrets that decode their answers, once. */

import { fromHex, viewOf } from "../bytes.js";
import { InputError, WireError } from "../errors.js";

/** How records lie in the server's matrix of bytes: `size` bytes each, cut into `parts` columns. */
export interface Layout {
  readonly records: number;
  readonly size: number;
  readonly parts: number;
  readonly rows: number;
  readonly columns: number;
  /** Bytes of a query for one column, and of its answer. */
  readonly queryBytes: number;
  readonly answerBytes: number;
}

/** Deviation of the noise, and the middle of bytes, which are counted from there: so noise is the least. */
export const SIGMA = 6.4, CENTER = 128;

/** Deviations that the noise in no byte of a record exceeds, but with probability 2^-40 (docs/theory/pir.md, Eq. 8). */
export function noiseTail(size: number): number {
  return Math.sqrt(2 * Math.log(2 * size * 2 ** 40));
}

/** What a server names of an exit. Raises WireError for parts of a record, or a seed of 32 bytes, that are none. */
export function partsAndSeed(said: Record<string, unknown>, size: number): { parts: number; seed: Uint8Array } {
  const { parts, seed } = said;
  if (typeof seed !== "string" || !/^[0-9a-f]{64}$/.test(seed)) throw damaged("its seed is none");
  if (typeof parts !== "number" || !Number.isInteger(parts) || parts < 1 || parts > size) throw damaged("its parts are none");
  return { parts, seed: fromHex(seed) };
}

/** The error for facts of an exit that no device should use. */
export function damaged(why: string): WireError {
  return new WireError(`what the server says of its exit is damaged (${why}); ask whoever serves it, or take another exit`);
}

/** A scheme that encrypts which column is asked for; a key decodes the answer to one query. */
export interface Scheme<Key> {
  readonly layout: Layout;
  /** What a fetch promises, as a sentence. */
  readonly guarantee: string;
  /** Write a query for each column, with secrets and noise drawn anew; returns the keys. */
  encrypted(columns: readonly number[], queries: readonly DataView[]): readonly Key[];
  /** Put the bytes of a column, as an answer says them, into `out`. */
  opened(answer: DataView, key: Key, out: Uint8Array): void;
}

/**
 * Queries for some records, and the keys that decode the answers.
 *
 * Two queries under one secret would tell the server the difference of what they ask for. So secrets are drawn where queries are
 * made, no query is made from them again, and they decode once.
 */
export class Queries<Key> {
  /** The queries, one after the other. */
  readonly bytes: Uint8Array;
  readonly #scheme: Scheme<Key>;
  #keys: readonly Key[];

  /** Raises InputError for no index and for one that is not there. */
  constructor(indices: readonly number[], scheme: Scheme<Key>) {
    const { records, parts, queryBytes } = scheme.layout;
    if (!indices.length || !indices.every((index) => Number.isInteger(index) && index >= 0 && index < records)) {
      throw new InputError(`indices must be one or more from 0 to ${records - 1}, got [${indices.join(", ")}]`);
    }
    const columns = indices.flatMap((index) => Array.from({ length: parts }, (_, part) => index * parts + part));
    this.bytes = new Uint8Array(columns.length * queryBytes);
    this.#scheme = scheme;
    this.#keys = scheme.encrypted(columns, columns.map((_, at) => viewOf(piece(this.bytes, at, queryBytes))));
  }

  /**
   * The records that were asked for. It uses up the secrets.
   *
   * Raises WireError for answers of another length, and InputError if it was called before. A server that lies gives other
   * bytes: check them.
   */
  decode(answers: Uint8Array): Uint8Array[] {
    const keys = this.#keys, { size, parts, rows, answerBytes } = this.#scheme.layout;
    if (!keys.length) throw new InputError("these answers were decoded already, and secrets are used once; make new queries");
    if (answers.length !== keys.length * answerBytes) {
      throw new WireError(`${keys.length} answers of ${answerBytes} bytes were due, got ${answers.length} bytes; fetch again`);
    }
    this.#keys = [];
    const bytes = new Uint8Array(keys.length * rows);
    keys.forEach((key, at) => this.#scheme.opened(viewOf(piece(answers, at, answerBytes)), key, piece(bytes, at, rows)));
    return Array.from({ length: keys.length / parts }, (_, at) => piece(bytes, at, parts * rows).slice(0, size));
  }
}

/** The piece of bytes with a number, of pieces of one size. */
export function piece(bytes: Uint8Array, number: number, size: number): Uint8Array {
  return bytes.subarray(number * size, (number + 1) * size);
}
