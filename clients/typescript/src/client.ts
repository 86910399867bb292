/** A client of one server: maps, contributions, queries, and deletions with receipts that are verified. */

import {
  type Accepted,
  type JobStatus,
  type Localization,
  type RemoteMap,
  acceptedOf,
  factsOf,
  jobOf,
  listOf,
  localizationOf,
  mapOf,
} from "./answers.js";
import { hex } from "./bytes.js";
import { readDictionary } from "./codebook_file.js";
import { messageLength } from "./codec.js";
import { Connection, type ConnectionOptions, VeilProblem } from "./connection.js";
import type { Dictionary } from "./dictionary.js";
import { sha256 } from "./digests.js";
import { InputError, WireError } from "./errors.js";
import { HEAD_BYTES, readHead } from "./head.js";
import { memberText } from "./json.js";
import { type Receipt, type ReceiptLink, receiptOf, requireInChain } from "./receipts.js";
import { MemoryStore, type Sending, type Store } from "./store.js";
import { MapTiles, type MapTilesOptions, type TileUse } from "./tiles/access.js";
import type { TileAnswer } from "./tiles/answer.js";
import type { Photograph } from "./tiles/jobs.js";

// Ids of maps, as servers make them; no map has a name of this form.
const MAP_ID = /^m[0-9a-f]{16}$/;
// Receipts of one server, more than any has; one that lies must not fill the device's memory.
const MOST_LINKS = 5_000_000;

/** How a server is reached, and where the client notes what it sent. */
export interface ClientOptions extends ConnectionOptions {
  /** Keeps messages until they are acknowledged, and ends of the chain of receipts; by default in memory. */
  store?: Store;
}

/** A photograph that is localized on this device, in tiles of a map. */
export interface TileQuery extends MapTilesOptions, TileUse {
  /** Name of the map's tiles at the client's server. */
  tiles: string;
  /** Addresses of the same tiles at servers that others run, such as https://b.example.org/v1/tiles/station. */
  also?: readonly string[];
  photograph: Photograph;
}

/**
 * A client of one server.
 *
 * It sends messages, which `Device.release` or Python's veil made, and queries for tiles, and nothing else: other bytes are
 * refused before anything is sent. Errors: InputError and WireError for what cannot be sent or read, `Unreachable`, and
 * `VeilProblem` where the server refuses.
 */
export class VeilClient {
  readonly #connection: Connection;
  readonly #store: Store;
  readonly #tiles = new Map<string, Promise<MapTiles>>();

  constructor(options: ClientOptions) {
    this.#connection = new Connection(options);
    this.#store = options.store ?? new MemoryStore();
  }

  /** What the server keeps and for how long, and what every accepted form promises. */
  async policy(): Promise<Readonly<Record<string, unknown>>> {
    return factsOf(await this.#get("v1", "policy"));
  }

  /** The maps that the token may use. */
  async maps(): Promise<RemoteMap[]> {
    return listOf(await this.#get("v1", "maps"), "maps").map(mapOf);
  }

  /** One map by its id, or by its name if no other map has it. Raises VeilProblem if there is none. */
  async map(name: string): Promise<RemoteMap> {
    if (MAP_ID.test(name)) return mapOf(await this.#get("v1", "maps", name));
    const named = (await this.maps()).filter((map) => map.name === name);
    if (named.length === 1) return named[0]!;
    const ids = named.map(({ id }) => id).join(", ");
    const reason = ids ? `${named.length} maps are called so; give the id of one: ${ids}` : "there is no map of this name";
    throw new VeilProblem(404, "not-found", "no such map", reason, null);
  }

  /**
   * A public dictionary by its digest, such as one of a map's `dictionaries`; its hash is computed, not believed.
   *
   * Raises WireError if the server sends another one, VeilProblem if it has none.
   */
  async dictionary(digest: string): Promise<Dictionary> {
    const path = ["v1", "dictionaries", digest];
    const file = await this.#connection.bytes({ method: "GET", path, accept: "*/*", isKept: true });
    const found = await readDictionary(file);
    if (found.digest !== digest) throw new WireError("the server sent another dictionary than was asked for");
    return found;
  }

  /** What the token may use, and what it has used. */
  async usage(): Promise<Readonly<Record<string, unknown>>> {
    return factsOf(await this.#get("v1", "me", "usage"));
  }

  /** The pose of a message's image on a map, given by id or name; the server keeps nothing of the message. */
  async localize(map: string, message: Uint8Array): Promise<Localization>;
  /**
   * The pose of a photograph in a map's tiles, found on this device: nothing of the photograph is sent, and no token.
   *
   * Tiles are opened once for the same addresses, exit and version. Raises what `MapTiles.open` and `MapTiles.localize` raise.
   */
  async localize(query: TileQuery): Promise<TileAnswer>;
  async localize(map: string | TileQuery, message?: Uint8Array): Promise<Localization | TileAnswer> {
    if (typeof map !== "string") return this.#fromTiles(map);
    if (message === undefined) throw new InputError("there is no message; give one, or a photograph with the name of tiles");
    requireMessage(message);
    const path = ["v1", "maps", await this.#idOf(map), "localize"];
    return localizationOf(await this.#connection.json({ method: "POST", path, message }));
  }

  /**
   * Give a message to a map, by its id or name; a name must be looked up before the message is noted.
   *
   * Release it with `purpose` "map": images of a map match by their draws. It waits in the store until the server has
   * acknowledged it, so that a retry (`send`) sends the same bytes; the same message again is the same contribution.
   */
  async contribute(map: string, message: Uint8Array): Promise<Accepted> {
    requireMessage(message);
    const sending: Sending = {
      server: this.#connection.url,
      map: await this.#idOf(map),
      messageSha256: hex(sha256(message)),
      message: message.slice(),
      contribution: "",
      receiptsHead: "",
    };
    await this.#note(sending);
    return this.#send(sending);
  }

  /** Send what waits for this server. Raises Unreachable if it still does not answer; the rest goes on waiting. */
  async send(): Promise<Accepted[]> {
    const found: Accepted[] = [];
    for (const sending of await this.#sendings()) if (sending.message !== null) found.push(await this.#send(sending));
    return found;
  }

  /** What this token contributed, as the server has it. */
  async contributions(): Promise<Accepted[]> {
    return listOf(await this.#get("v1", "contributions"), "contributions").map(acceptedOf);
  }

  /** One contribution, as the server has it. */
  async contribution(id: string): Promise<Accepted> {
    return acceptedOf(await this.#get("v1", "contributions", id));
  }

  /** How far a job is. */
  async job(id: string): Promise<JobStatus> {
    return jobOf(await this.#get("v1", "jobs", id));
  }

  /** The end of a job; `told` is called with what it does meanwhile. */
  async wait(id: string, { told = (_: JobStatus): void => {}, everyMs = 500 } = {}): Promise<JobStatus> {
    for (;;) {
      const status = await this.job(id);
      told(status);
      if (status.state !== "queued" && status.state !== "running") return status;
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  }

  /** Delete a contribution, wait until it is out of the map, and return the verified receipt. */
  async delete(contribution: string): Promise<Receipt> {
    const path = ["v1", "contributions", contribution];
    const answer = await this.#connection.text({ method: "DELETE", path });
    const { job } = factsOf(JSON.parse(answer));
    let text = memberText(answer, "receipt");
    if ((text === null || text === "null") && typeof job === "string") {
      await this.wait(job);
      text = await this.#connection.text({ method: "GET", path: [...path, "receipt"] });
    }
    if (text === null || text === "null") throw new WireError("the server gave no receipt");
    const receipt = receiptOf(text);
    if (receipt.content.contribution !== contribution) throw new WireError("the receipt is of another contribution");
    await this.verify(receipt);
    await this.#store.transact((held) => {
      const kept = held.sendings.filter(
        (item) => item.server !== this.#connection.url || item.contribution !== contribution,
      );
      return { result: undefined, sendings: kept };
    });
    return receipt;
  }

  /** The server's chain of receipts, which tells nothing of what was deleted. */
  async receipts(): Promise<ReceiptLink[]> {
    const links: ReceiptLink[] = [];
    for (;;) {
      const request = { method: "GET", path: ["v1", "receipts"], query: { after: links.length } } as const;
      const page = listOf(await this.#connection.json(request), "links");
      if (page.length === 0) return links;
      for (const value of page) links.push(linkOf(value));
      if (links.length > MOST_LINKS) throw new WireError("the server's chain of receipts does not end");
    }
  }

  /**
   * Check a receipt against the server's chain, and the chain against the ends that were noted of it before.
   *
   * Raises WireError for a receipt that is not in the chain, of other bytes than were sent, or where the chain was rewritten.
   */
  async verify(receipt: Receipt): Promise<void> {
    const links = await this.receipts(), noted = await this.#sendings();
    for (const { contribution, messageSha256 } of noted) {
      if (contribution !== receipt.content.contribution || contribution === "") continue;
      if (messageSha256 !== receipt.content.message_sha256) {
        throw new WireError("the receipt names other bytes than those that were sent");
      }
    }
    const heads = new Set(noted.map(({ receiptsHead }) => receiptsHead));
    for (const head of heads.size > 0 ? heads : [""]) requireInChain(receipt, links, head || null);
  }

  async #fromTiles({ tiles, also = [], photograph, near, within, fix, most, options, ...access }: TileQuery): Promise<TileAnswer> {
    const urls = [`${this.#connection.url}/v1/tiles/${encodeURIComponent(tiles)}`, ...also];
    const key = JSON.stringify([urls, access.version, access.offline, access.exit]);
    let opened = this.#tiles.get(key);
    if (opened === undefined) {
      opened = MapTiles.open(urls, access);
      this.#tiles.set(key, opened);
      opened.catch(() => this.#tiles.delete(key));
    }
    const use = { near, within, fix, most, options };
    return (await opened).localize(photograph, Object.fromEntries(Object.entries(use).filter(([, value]) => value !== undefined)));
  }

  /** Send one message, and note that it was acknowledged, or drop it if it was refused for good. */
  async #send(sending: Sending): Promise<Accepted> {
    const path = ["v1", "maps", sending.map, "contributions"];
    let accepted: Accepted;
    try {
      const message = sending.message!;
      accepted = acceptedOf(await this.#connection.json({ method: "POST", path, message }));
    } catch (error) {
      if (error instanceof VeilProblem && [400, 404, 413, 415, 422].includes(error.status)) await this.#drop(sending);
      throw error;
    }
    if (accepted.messageSha256 !== sending.messageSha256) {
      throw new WireError("the server acknowledged other bytes than were sent");
    }
    const { contribution, receiptsHead } = accepted;
    await this.#note({ ...sending, message: null, contribution, receiptsHead });
    return accepted;
  }

  /** The id of a map; an id needs no answer of the server, which may be away. */
  async #idOf(map: string): Promise<string> {
    return MAP_ID.test(map) ? map : (await this.map(map)).id;
  }

  async #get(...path: string[]): Promise<unknown> {
    return this.#connection.json({ method: "GET", path });
  }

  /** What was sent to this server, or waits for it. */
  async #sendings(): Promise<readonly Sending[]> {
    const all = await this.#store.transact((held) => ({ result: held.sendings }));
    return all.filter(({ server }) => server === this.#connection.url);
  }

  async #note(sending: Sending): Promise<void> {
    await this.#store.transact((held) => {
      return { result: undefined, sendings: [...held.sendings.filter((item) => !isSame(item, sending)), sending] };
    });
  }

  async #drop(sending: Sending): Promise<void> {
    await this.#store.transact((held) => {
      return { result: undefined, sendings: held.sendings.filter((item) => !isSame(item, sending)) };
    });
  }
}

function isSame(a: Sending, b: Sending): boolean {
  return a.server === b.server && a.map === b.map && a.messageSha256 === b.messageSha256;
}

function linkOf(value: unknown): ReceiptLink {
  if (!Array.isArray(value) || value.length !== 3 || typeof value[0] !== "number") {
    throw new WireError("the server's chain of receipts cannot be read; it may be of another version of veil");
  }
  return [value[0], String(value[1]), String(value[2])];
}

/** Raise WireError unless bytes are a message by their header and length: nothing raw is sent by accident. */
export function requireMessage(message: Uint8Array): void {
  const head = readHead(message);
  if (messageLength(head) !== message.length || message.length <= HEAD_BYTES) {
    throw new WireError("the bytes are no whole message; send what a device released");
  }
}
