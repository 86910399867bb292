/**
 * Private tiles: pieces of a public map from two servers or more, of which none learns which (docs/theory/pir.md, Eq. 1-2).
 *
 * Every fetch asks for as many tiles as all devices ask for, at once, whatever is wanted and whatever came of it before.
 */

import { areEqual, concatenated, fromHex, hex, utf8, viewOf } from "./bytes.js";
import { Unreachable } from "./connection.js";
import { sha256 } from "./digests.js";
import { InputError, WireError, needed } from "./errors.js";
import { canonicalJson } from "./json.js";

export const TILE_QUERIES_TYPE = "application/vnd.veil.tile-queries";
const LOCAL = ["127.0.0.1", "localhost", "[::1]"];
const MOST_JSON = 1 << 20, MOST_TILES = 1 << 20, MOST_TILE = 1 << 28, MOST_ANSWER = 1 << 28, HASH = 32;
// What crypto.getRandomValues gives at a time.
const MOST_RANDOM = 65_536;

/** How tiles are reached. */
export interface TileOptions {
  /** The version that the tiles must have, as whoever publishes it says. */
  version?: string;
  /** Of one request; by default 60. */
  timeoutS?: number;
  /** What sends requests; by default the environment's. */
  fetch?: typeof fetch;
}

/** What is public of a map's tiles. */
export interface TileFacts {
  /** SHA-256 (hex) that stands for all bytes of the tiles. */
  readonly version: string;
  readonly tiles: number;
  /** Bytes of a tile, and with its proof. */
  readonly tileBytes: number;
  readonly recordBytes: number;
  /** Tiles that every fetch asks for. */
  readonly asked: number;
  readonly root: Uint8Array;
}

/** What came of one fetch. */
export interface FetchedTiles {
  /** Bytes of those wanted tiles that are what the manifest says, by number. */
  readonly tiles: ReadonlyMap<number, Uint8Array>;
  /** What was wrong with the others. Tell the user, and never the server: it would learn that they were wanted. */
  readonly refused: ReadonlyMap<number, string>;
}

/** Tiles of one map at servers that do not all collude. */
export class TileServers {
  private constructor(
    readonly facts: TileFacts,
    /** Corners of the box around the cameras of each tile: x, y, z of the low one, then of the high one. */
    readonly boxes: Float64Array,
    private readonly hosts: readonly Host[],
  ) {}

  /** What a fetch promises, as a sentence. */
  get guarantee(): string {
    return (
      `While at least 1 of ${this.hosts.length} servers keeps to itself what it receives, no server learns which records a ` +
      "session fetched, however much it computes; each server learns how many records were asked for, when and from which " +
      "network address."
    );
  }

  /**
   * Open tiles at the addresses of servers that others run, such as https://maps.example.org/v1/tiles/station.
   *
   * Raises InputError for fewer than two different addresses and for plain http to another machine, Unreachable if a server
   * does not answer, WireError for a manifest that is none and where servers do not have the same version.
   */
  static async open(urls: readonly string[], options: TileOptions = {}): Promise<TileServers> {
    const hosts = urls.map((url) => new Host(url, options));
    if (hosts.length < 2 || new Set(hosts.map(({ url }) => url)).size < hosts.length) {
      throw new InputError("give the addresses of two servers or more, which others run: one alone would learn what is fetched");
    }
    const versions = await Promise.all(hosts.map((host) => host.version()));
    const [version] = versions as [string, ...string[]];
    if (versions.some((other) => other !== version)) {
      throw new WireError("the servers do not have the same tiles; try again later");
    }
    if (options.version !== undefined && options.version !== version) {
      throw new WireError("the servers have another version of the tiles than is asked for; do not use it");
    }
    const [first] = hosts as [Host, ...Host[]];
    const text = new TextDecoder().decode(await first.file(`${version}/manifest.json`, MOST_JSON));
    const { facts, binaryDigest } = factsOf(text, version);
    const binary = await first.file(`${version}/manifest.bin`, MOST_ANSWER);
    if (hex(sha256(binary)) !== binaryDigest || binary.length < 48 * facts.tiles) {
      throw new WireError("the manifest's parts do not belong together; try again later");
    }
    return new TileServers(facts, boxesOf(binary, facts.tiles), hosts);
  }

  /** Numbers of the tiles whose cameras are nearest to a place in the map, the nearest first; as many as a fetch asks for. */
  near(x: number, y: number, z: number): number[] {
    if (![x, y, z].every(Number.isFinite)) throw new InputError("the place near which to look must be finite");
    const away = (tile: number): number =>
      Math.hypot(
        ...[x, y, z].map((value, axis) => {
          const low = this.boxes[3 * tile + axis]!, high = this.boxes[3 * (this.facts.tiles + tile) + axis]!;
          return Math.max(low - value, 0, value - high);
        }),
      );
    const distances = Array.from({ length: this.facts.tiles }, (_, tile) => away(tile));
    const order = distances.map((_, tile) => tile).sort((a, b) => distances[a]! - distances[b]! || a - b);
    return order.slice(0, this.facts.asked);
  }

  /**
   * Fetch once. Dummies fill up what is wanted, and what failed is not asked for again.
   *
   * Raises InputError for tiles that are not there, are wanted twice or are more than are asked for; Unreachable or WireError
   * if a server does not answer as it should.
   */
  async fetch(wanted: readonly number[]): Promise<FetchedTiles> {
    const { tiles: count, asked, recordBytes, version } = this.facts;
    const isThere = (tile: number): boolean => Number.isInteger(tile) && tile >= 0 && tile < count;
    if (new Set(wanted).size < wanted.length || wanted.length > asked || !wanted.every(isThere)) {
      throw new InputError(`at most ${asked} different tiles from 0 to ${count - 1} can be wanted`);
    }
    const indices = withDummies(wanted, count, asked);
    const queries = indices.map((index) => queriesFor(index, count, this.hosts.length));
    // All servers are asked at once, and whether one fails changes nothing for the others.
    const answers = await Promise.allSettled(
      this.hosts.map((host, server) => {
        const own = concatenated(...queries.map((shares) => shares[server]!));
        return host.answers(`${version}/answers/two-servers`, own, asked * recordBytes);
      }),
    );
    const received = answers.map((answer) => {
      if (answer.status === "rejected") throw answer.reason;
      return answer.value;
    });
    const tiles = new Map<number, Uint8Array>(), refused = new Map<number, string>();
    indices.forEach((index, at) => {
      const record = new Uint8Array(recordBytes);
      for (const answer of received) xorInto(record, answer.subarray(at * recordBytes, (at + 1) * recordBytes));
      const data = record.slice(0, this.facts.tileBytes);
      // Dummies are proved, too, so that the time until the next request does not tell how many there were.
      const isProved = provesRoot(data, index, record.subarray(this.facts.tileBytes), this.facts.root);
      if (!wanted.includes(index)) return;
      if (isProved) tiles.set(index, data);
      else refused.set(index, `tile ${index} is not the one that the manifest names: a server or the network changed it`);
    });
    return { tiles, refused };
  }
}

/** One query for each server: uniformly random subsets of the records, of which the sum modulo 2 is the wanted one alone. */
export function queriesFor(index: number, records: number, servers: number): Uint8Array[] {
  const size = Math.ceil(records / 8), last = new Uint8Array(size);
  const queries = Array.from({ length: servers - 1 }, () => {
    const subset = randomBytes(size);
    if (records % 8) subset[size - 1]! &= (1 << (records % 8)) - 1;
    xorInto(last, subset);
    return subset;
  });
  last[index >> 3]! ^= 1 << (index & 7);
  return [...queries, last];
}

/** The wanted tiles and others, distinct and uniformly random, in random order. */
function withDummies(wanted: readonly number[], count: number, asked: number): number[] {
  const chosen = new Set(wanted);
  while (chosen.size < asked) chosen.add(randomBelow(count));
  const indices = [...chosen];
  for (let at = indices.length - 1; at > 0; at--) {
    const other = randomBelow(at + 1);
    [indices[at], indices[other]] = [indices[other]!, indices[at]!];
  }
  return indices;
}

/** A uniformly random integer below `bound`, at most 2^32. */
function randomBelow(bound: number): number {
  const limit = 2 ** 32 - (2 ** 32 % bound);
  for (;;) {
    const drawn = viewOf(randomBytes(4)).getUint32(0);
    if (drawn < limit) return drawn % bound;
  }
}

function randomBytes(count: number): Uint8Array {
  const out = new Uint8Array(count), generator = needed(globalThis.crypto, "crypto");
  for (let at = 0; at < count; at += MOST_RANDOM) generator.getRandomValues(out.subarray(at, at + MOST_RANDOM));
  return out;
}

function xorInto(out: Uint8Array, other: Uint8Array): void {
  for (let at = 0; at < out.length; at++) out[at]! ^= other[at]!;
}

/** Whether a path of hashes proves that the root stands for a tile (docs/reference/tiles.md#proof). */
export function provesRoot(tile: Uint8Array, index: number, path: Uint8Array, root: Uint8Array): boolean {
  let current = sha256(concatenated(Uint8Array.of(0), tile));
  for (let height = 0; HASH * height < path.length; height++) {
    const sibling = path.subarray(HASH * height, HASH * (height + 1));
    const isRight = Math.floor(index / 2 ** height) % 2 === 1;
    const [left, right] = isRight ? [sibling, current] : [current, sibling];
    current = sha256(concatenated(Uint8Array.of(1), left, right));
  }
  return areEqual(current, root);
}

/** The facts of a manifest's text, whose version is computed and not believed. Raises WireError for anything else. */
function factsOf(text: string, version: string): { facts: TileFacts; binaryDigest: string } {
  const canonical = canonicalJson(text);
  const value = JSON.parse(canonical) as Record<string, unknown>;
  const without = canonical.replace(`,"version":"${version}"`, "");
  const digest = hex(sha256(concatenated(utf8("veil tiles\0"), utf8(without))));
  const number = (name: string, most: number): number => {
    const found = value[name];
    if (typeof found !== "number" || !Number.isInteger(found) || found < 1 || found > most) {
      throw new WireError(`the manifest's ${name} is no number from 1 to ${most}`);
    }
    return found;
  };
  if (value.veil_tiles !== 1 || value.version !== version || digest !== version) {
    throw new WireError("this is no manifest of these tiles; get it again");
  }
  const tiles = number("tiles", MOST_TILES), tileBytes = number("tile_bytes", MOST_TILE);
  const root = fromHex(String(value.merkle_root)), recordBytes = tileBytes + HASH * Math.ceil(Math.log2(tiles));
  if (root.length !== HASH || number("record_bytes", 2 * MOST_TILE) !== recordBytes) {
    throw new WireError("the manifest's sizes are wrong; get it again");
  }
  const facts = { version, tiles, tileBytes, recordBytes, asked: number("asked", tiles), root };
  return { facts, binaryDigest: String(value.binary_sha256) };
}

/** The corners at the beginning of a manifest's arrays. Raises WireError for corners that are none. */
function boxesOf(binary: Uint8Array, tiles: number): Float64Array {
  const view = viewOf(binary), boxes = new Float64Array(6 * tiles);
  for (let at = 0; at < boxes.length; at++) boxes[at] = view.getFloat64(8 * at, true);
  if (!boxes.every(Number.isFinite)) throw new WireError("the manifest's cells are none; get it again");
  return boxes;
}

/** One server: requests without a token or a cookie, each sent once. */
class Host {
  readonly url: string;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;

  constructor(url: string, { timeoutS = 60, fetch: send }: TileOptions) {
    const parsed = URL.canParse(url) ? new URL(url) : null;
    if (parsed === null || !["http:", "https:"].includes(parsed.protocol) || parsed.search || parsed.hash || parsed.username) {
      throw new InputError("an address of tiles is none; give one such as https://maps.example.org/v1/tiles/station");
    }
    if (parsed.protocol === "http:" && !LOCAL.includes(parsed.hostname)) {
      throw new InputError(`${parsed.origin} would tell everybody on the way which map is asked for; use https`);
    }
    this.url = parsed.href.replace(/\/+$/, "");
    this.#timeoutMs = 1000 * timeoutS;
    if (send === undefined) needed(globalThis.fetch, "fetch");
    this.#fetch = send ?? ((...given) => globalThis.fetch(...given));
  }

  /** The version of the tiles that this server names. */
  async version(): Promise<string> {
    const text = new TextDecoder().decode(await this.file("exits.json", 1 << 16));
    const said = JSON.parse(canonicalJson(text)) as Record<string, unknown> | null;
    if (typeof said?.version !== "string" || !/^[0-9a-f]{64}$/.test(said.version)) {
      throw new WireError(`${this.url} does not say which tiles it has; check the address`);
    }
    return said.version;
  }

  async file(name: string, most: number): Promise<Uint8Array> {
    return this.#asked(name, { method: "GET" }, most);
  }

  /** Answers of a length that is known. Raises WireError for another length. */
  async answers(name: string, queries: Uint8Array, size: number): Promise<Uint8Array> {
    const headers = { "Content-Type": TILE_QUERIES_TYPE };
    const found = await this.#asked(name, { method: "POST", headers, body: queries.slice(), cache: "no-store" }, size);
    if (found.length !== size) throw new WireError(`${this.url} answered ${found.length} bytes, and ${size} were due`);
    return found;
  }

  async #asked(name: string, init: RequestInit, most: number): Promise<Uint8Array> {
    const signal = AbortSignal.timeout(this.#timeoutMs);
    const options: RequestInit = { redirect: "error", credentials: "omit", referrerPolicy: "no-referrer", signal, ...init };
    try {
      const response = await this.#fetch(`${this.url}/${name}`, options);
      if (!response.ok) throw new Unreachable(`${this.url}/${name} cannot be had (status ${response.status}); try again later`);
      const reader = response.body?.getReader(), parts: Uint8Array[] = [];
      let length = 0;
      for (let part = await reader?.read(); part && !part.done; part = await reader!.read()) {
        length += part.value.length;
        if (length > most) {
          await reader?.cancel();
          throw new WireError(`${this.url}/${name} is longer than the ${most} bytes that it may have`);
        }
        parts.push(part.value);
      }
      return concatenated(...parts);
    } catch (error) {
      if (error instanceof Unreachable || error instanceof WireError) throw error;
      throw new Unreachable(`${this.url} does not answer; try again later`);
    }
  }
}
