/** What a device keeps of a map's tiles, by their version. Whoever reads it knows where the device was. */

/** Bytes by name, which a device keeps. */
export interface TileCache {
  get(name: string): Promise<Uint8Array | null>;
  put(name: string, bytes: Uint8Array): Promise<void>;
}

/** Bytes in memory. */
export class MemoryTileCache implements TileCache {
  readonly #held = new Map<string, Uint8Array>();

  async get(name: string): Promise<Uint8Array | null> {
    return this.#held.get(name) ?? null;
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    this.#held.set(name, bytes.slice());
  }
}

/** Bytes in the browser's storage of responses (Service Workers, 5.4), where every script of the page's origin can read them. */
export class BrowserTileCache implements TileCache {
  /** `name` of the storage; deleting it forgets where the device was. */
  constructor(readonly name = "veil-tiles") {}

  async get(name: string): Promise<Uint8Array | null> {
    const held = await (await caches.open(this.name)).match(addressOf(name));
    return held === undefined ? null : new Uint8Array(await held.arrayBuffer());
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    await (await caches.open(this.name)).put(addressOf(name), new Response(bytes.slice()));
  }
}

/** An address that no server has: nothing is ever fetched from it. */
const addressOf = (name: string): string => `https://kept.invalid/${encodeURIComponent(name)}`;
