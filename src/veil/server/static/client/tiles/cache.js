/** What a device keeps of a map's tiles, by their version. Whoever reads it knows where the device was. */
/** Bytes in memory. */
export class MemoryTileCache {
    #held = new Map();
    async get(name) {
        return this.#held.get(name) ?? null;
    }
    async put(name, bytes) {
        this.#held.set(name, bytes.slice());
    }
}
/** Bytes in the browser's storage of responses (Service Workers, 5.4), where every script of the page's origin can read them. */
export class BrowserTileCache {
    name;
    /** `name` of the storage; deleting it forgets where the device was. */
    constructor(name = "veil-tiles") {
        this.name = name;
    }
    async get(name) {
        const held = await (await caches.open(this.name)).match(addressOf(name));
        return held === undefined ? null : new Uint8Array(await held.arrayBuffer());
    }
    async put(name, bytes) {
        await (await caches.open(this.name)).put(addressOf(name), new Response(bytes.slice()));
    }
}
/** An address that no server has: nothing is ever fetched from it. */
const addressOf = (name) => `https://kept.invalid/${encodeURIComponent(name)}`;
