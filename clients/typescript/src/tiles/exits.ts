/** Ways to fetch tiles, by the names that they have in Python (docs/theory/tiles.md#fetching). */

import { concatenated, hex } from "../bytes.js";
import { sha256 } from "../digests.js";
import { InputError, WireError } from "../errors.js";
import { Hintless } from "./hintless.js";
import type { Host, Served } from "./host.js";
import type { TileFacts } from "./manifest.js";
import { OneServer, hintBytes } from "./one_server.js";
import { Queries, type Scheme, piece } from "./queries.js";
import { queriesFor, xorInto } from "./two_servers.js";

/** Names of the exits: all tiles at once, from two servers or more, from one server with a hint, and without one. */
export const EXITS = ["region", "two-servers", "one-server", "hintless"] as const;
export type TileExit = (typeof EXITS)[number];

// Maps of fewer bytes are downloaded as a whole where nobody says otherwise; a hint of more bytes is not downloaded.
const REGION_BYTES = 16 << 20, MOST_HINT = 1 << 28;

/** A way to fetch records, and what it promises. */
export interface Exit {
  /** What a fetch promises, as a sentence. */
  readonly guarantee: string;
  /** The records of some indices, in their order. What is sent depends on the number of indices and on nothing else. */
  fetch(indices: readonly number[]): Promise<Uint8Array[]>;
}

/** What an exit is made of: the servers, what the first says of its exits, and the manifest's facts. */
export interface Source {
  readonly hosts: readonly Host[];
  readonly served: Served;
  readonly facts: TileFacts;
  /** A larger map is not downloaded as a whole. */
  readonly mostBytes: number;
}

/** The exit where nobody says which: a function of the map and of the addresses. */
export function defaultExit({ hosts, served, facts }: Source): TileExit {
  if (facts.tiles * facts.recordBytes <= REGION_BYTES) return "region";
  if (hosts.length > 1) return "two-servers";
  return (["hintless", "one-server"] as const).find((name) => name in served.exits) ?? "region";
}

/** The exit of a name. Raises InputError where it is not offered, WireError for facts of it that no device should use. */
export async function exitOf(name: TileExit, source: Source): Promise<Exit> {
  const { hosts, served, facts, mostBytes } = source, { tiles, recordBytes, version } = facts, host = hosts[0]!;
  if (name === "region") {
    if (tiles * recordBytes > mostBytes) {
      throw new InputError(
        `the map has ${tiles * recordBytes} bytes, more than ${mostBytes}; fetch a part of it from two servers, or allow more`,
      );
    }
    return new Region(() => host.sized(`${version}/tiles.bin`, tiles * recordBytes), recordBytes);
  }
  if (name === "two-servers") return new TwoServers(hosts, facts);
  if (hosts.length !== 1 || !(name in served.exits)) {
    throw new InputError(`the exit ${name} takes one address, of a server that offers it; or fetch from two servers`);
  }
  const send: Send = (queries, size) => host.answers(`${version}/answers/${name}`, queries, size);
  const said = served.exits[name];
  if (name === "hintless") return new FromOne(Hintless.of(said, tiles, recordBytes), send);
  const { layout, seed, hintDigest } = OneServer.facts(said, tiles, recordBytes), size = hintBytes(layout);
  if (size > MOST_HINT) throw new InputError(`the hint has ${size} bytes, more than ${MOST_HINT}; take another exit`);
  const hint = await host.sized(`${version}/hint.bin`, size);
  if (hex(sha256(hint)) !== hintDigest) throw new WireError(`the hint of ${host.url} is not the one that it names; open again`);
  return new FromOne(new OneServer(layout, seed, hint), send);
}

/** All records at once: nothing that is sent depends on which are wanted. They are read once, at the first fetch. */
class Region implements Exit {
  readonly guarantee =
    "No server learns which records a session fetched, however much it computes; each server learns that the whole map was " +
    "downloaded, when and from which network address.";
  #records: Uint8Array | undefined;

  constructor(
    private readonly read: () => Promise<Uint8Array>,
    private readonly size: number,
  ) {}

  async fetch(indices: readonly number[]): Promise<Uint8Array[]> {
    const records = (this.#records ??= await this.read());
    return indices.map((index) => piece(records, index, this.size).slice());
  }
}

/** Records from two servers or more that do not all collude. */
class TwoServers implements Exit {
  constructor(
    private readonly hosts: readonly Host[],
    private readonly facts: TileFacts,
  ) {}

  get guarantee(): string {
    return (
      `While at least 1 of ${this.hosts.length} servers keeps to itself what it receives, no server learns which records a ` +
      "session fetched, however much it computes; each server learns how many records were asked for, when and from which " +
      "network address."
    );
  }

  async fetch(indices: readonly number[]): Promise<Uint8Array[]> {
    const { tiles, recordBytes, version } = this.facts;
    const queries = indices.map((index) => queriesFor(index, tiles, this.hosts.length));
    // All servers are asked at once, and whether one fails changes nothing for the others.
    const answers = await Promise.allSettled(
      this.hosts.map((host, server) => {
        const own = concatenated(...queries.map((shares) => shares[server]!));
        return host.answers(`${version}/answers/two-servers`, own, indices.length * recordBytes);
      }),
    );
    const whole = new Uint8Array(indices.length * recordBytes);
    for (const answer of answers) {
      if (answer.status === "rejected") throw answer.reason;
      xorInto(whole, answer.value);
    }
    return indices.map((_, at) => piece(whole, at, recordBytes));
  }
}

/** Carries queries to a server and brings its answers, of a size that is known. */
type Send = (queries: Uint8Array, size: number) => Promise<Uint8Array>;

/** Records from a single server, which only sees encrypted queries. */
class FromOne<Key> implements Exit {
  constructor(
    private readonly scheme: Scheme<Key>,
    private readonly send: Send,
  ) {}

  get guarantee(): string {
    return this.scheme.guarantee;
  }

  async fetch(indices: readonly number[]): Promise<Uint8Array[]> {
    const queries = new Queries(indices, this.scheme), { parts, answerBytes } = this.scheme.layout;
    return queries.decode(await this.send(queries.bytes, indices.length * parts * answerBytes));
  }
}
