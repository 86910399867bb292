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
/** Tiles of one map at servers that do not all collude. */
export class TileServers {
    facts;
    boxes;
    hosts;
    constructor(facts, 
    /** Corners of the box around the cameras of each tile: x, y, z of the low one, then of the high one. */
    boxes, hosts) {
        this.facts = facts;
        this.boxes = boxes;
        this.hosts = hosts;
    }
    /** What a fetch promises, as a sentence. */
    get guarantee() {
        return (`While at least 1 of ${this.hosts.length} servers keeps to itself what it receives, no server learns which records a ` +
            "session fetched, however much it computes; each server learns how many records were asked for, when and from which " +
            "network address.");
    }
    /**
     * Open tiles at the addresses of servers that others run, such as https://maps.example.org/v1/tiles/station.
     *
     * Raises InputError for fewer than two different addresses and for plain http to another machine, Unreachable if a server
     * does not answer, WireError for a manifest that is none and where servers do not have the same version.
     */
    static async open(urls, options = {}) {
        const hosts = urls.map((url) => new Host(url, options));
        if (hosts.length < 2 || new Set(hosts.map(({ url }) => url)).size < hosts.length) {
            throw new InputError("give the addresses of two servers or more, which others run: one alone would learn what is fetched");
        }
        const versions = await Promise.all(hosts.map((host) => host.version()));
        const [version] = versions;
        if (versions.some((other) => other !== version)) {
            throw new WireError("the servers do not have the same tiles; try again later");
        }
        if (options.version !== undefined && options.version !== version) {
            throw new WireError("the servers have another version of the tiles than is asked for; do not use it");
        }
        const [first] = hosts;
        const text = new TextDecoder().decode(await first.file(`${version}/manifest.json`, MOST_JSON));
        const { facts, binaryDigest } = factsOf(text, version);
        const binary = await first.file(`${version}/manifest.bin`, MOST_ANSWER);
        if (hex(sha256(binary)) !== binaryDigest || binary.length < 48 * facts.tiles) {
            throw new WireError("the manifest's parts do not belong together; try again later");
        }
        return new TileServers(facts, boxesOf(binary, facts.tiles), hosts);
    }
    /** Numbers of the tiles whose cameras are nearest to a place in the map, the nearest first; as many as a fetch asks for. */
    near(x, y, z) {
        if (![x, y, z].every(Number.isFinite))
            throw new InputError("the place near which to look must be finite");
        const away = (tile) => Math.hypot(...[x, y, z].map((value, axis) => {
            const low = this.boxes[3 * tile + axis], high = this.boxes[3 * (this.facts.tiles + tile) + axis];
            return Math.max(low - value, 0, value - high);
        }));
        const distances = Array.from({ length: this.facts.tiles }, (_, tile) => away(tile));
        const order = distances.map((_, tile) => tile).sort((a, b) => distances[a] - distances[b] || a - b);
        return order.slice(0, this.facts.asked);
    }
    /**
     * Fetch once. Dummies fill up what is wanted, and what failed is not asked for again.
     *
     * Raises InputError for tiles that are not there, are wanted twice or are more than are asked for; Unreachable or WireError
     * if a server does not answer as it should.
     */
    async fetch(wanted) {
        const { tiles: count, asked, recordBytes, version } = this.facts;
        const isThere = (tile) => Number.isInteger(tile) && tile >= 0 && tile < count;
        if (new Set(wanted).size < wanted.length || wanted.length > asked || !wanted.every(isThere)) {
            throw new InputError(`at most ${asked} different tiles from 0 to ${count - 1} can be wanted`);
        }
        const indices = withDummies(wanted, count, asked);
        const queries = indices.map((index) => queriesFor(index, count, this.hosts.length));
        // All servers are asked at once, and whether one fails changes nothing for the others.
        const answers = await Promise.allSettled(this.hosts.map((host, server) => {
            const own = concatenated(...queries.map((shares) => shares[server]));
            return host.answers(`${version}/answers/two-servers`, own, asked * recordBytes);
        }));
        const received = answers.map((answer) => {
            if (answer.status === "rejected")
                throw answer.reason;
            return answer.value;
        });
        const tiles = new Map(), refused = new Map();
        indices.forEach((index, at) => {
            const record = new Uint8Array(recordBytes);
            for (const answer of received)
                xorInto(record, answer.subarray(at * recordBytes, (at + 1) * recordBytes));
            const data = record.slice(0, this.facts.tileBytes);
            // Dummies are proved, too, so that the time until the next request does not tell how many there were.
            const isProved = provesRoot(data, index, record.subarray(this.facts.tileBytes), this.facts.root);
            if (!wanted.includes(index))
                return;
            if (isProved)
                tiles.set(index, data);
            else
                refused.set(index, `tile ${index} is not the one that the manifest names: a server or the network changed it`);
        });
        return { tiles, refused };
    }
}
/** One query for each server: uniformly random subsets of the records, of which the sum modulo 2 is the wanted one alone. */
export function queriesFor(index, records, servers) {
    const size = Math.ceil(records / 8), last = new Uint8Array(size);
    const queries = Array.from({ length: servers - 1 }, () => {
        const subset = randomBytes(size);
        if (records % 8)
            subset[size - 1] &= (1 << (records % 8)) - 1;
        xorInto(last, subset);
        return subset;
    });
    last[index >> 3] ^= 1 << (index & 7);
    return [...queries, last];
}
/** The wanted tiles and others, distinct and uniformly random, in random order. */
function withDummies(wanted, count, asked) {
    const chosen = new Set(wanted);
    while (chosen.size < asked)
        chosen.add(randomBelow(count));
    const indices = [...chosen];
    for (let at = indices.length - 1; at > 0; at--) {
        const other = randomBelow(at + 1);
        [indices[at], indices[other]] = [indices[other], indices[at]];
    }
    return indices;
}
/** A uniformly random integer below `bound`, at most 2^32. */
function randomBelow(bound) {
    const limit = 2 ** 32 - (2 ** 32 % bound);
    for (;;) {
        const drawn = viewOf(randomBytes(4)).getUint32(0);
        if (drawn < limit)
            return drawn % bound;
    }
}
function randomBytes(count) {
    const out = new Uint8Array(count), generator = needed(globalThis.crypto, "crypto");
    for (let at = 0; at < count; at += MOST_RANDOM)
        generator.getRandomValues(out.subarray(at, at + MOST_RANDOM));
    return out;
}
function xorInto(out, other) {
    for (let at = 0; at < out.length; at++)
        out[at] ^= other[at];
}
/** Whether a path of hashes proves that the root stands for a tile (docs/reference/tiles.md#proof). */
export function provesRoot(tile, index, path, root) {
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
function factsOf(text, version) {
    const canonical = canonicalJson(text);
    const value = JSON.parse(canonical);
    const without = canonical.replace(`,"version":"${version}"`, "");
    const digest = hex(sha256(concatenated(utf8("veil tiles\0"), utf8(without))));
    const number = (name, most) => {
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
function boxesOf(binary, tiles) {
    const view = viewOf(binary), boxes = new Float64Array(6 * tiles);
    for (let at = 0; at < boxes.length; at++)
        boxes[at] = view.getFloat64(8 * at, true);
    if (!boxes.every(Number.isFinite))
        throw new WireError("the manifest's cells are none; get it again");
    return boxes;
}
/** One server: requests without a token or a cookie, each sent once. */
class Host {
    url;
    #timeoutMs;
    #fetch;
    constructor(url, { timeoutS = 60, fetch: send }) {
        const parsed = URL.canParse(url) ? new URL(url) : null;
        if (parsed === null || !["http:", "https:"].includes(parsed.protocol) || parsed.search || parsed.hash || parsed.username) {
            throw new InputError("an address of tiles is none; give one such as https://maps.example.org/v1/tiles/station");
        }
        if (parsed.protocol === "http:" && !LOCAL.includes(parsed.hostname)) {
            throw new InputError(`${parsed.origin} would tell everybody on the way which map is asked for; use https`);
        }
        this.url = parsed.href.replace(/\/+$/, "");
        this.#timeoutMs = 1000 * timeoutS;
        if (send === undefined)
            needed(globalThis.fetch, "fetch");
        this.#fetch = send ?? ((...given) => globalThis.fetch(...given));
    }
    /** The version of the tiles that this server names. */
    async version() {
        const text = new TextDecoder().decode(await this.file("exits.json", 1 << 16));
        const said = JSON.parse(canonicalJson(text));
        if (typeof said?.version !== "string" || !/^[0-9a-f]{64}$/.test(said.version)) {
            throw new WireError(`${this.url} does not say which tiles it has; check the address`);
        }
        return said.version;
    }
    async file(name, most) {
        return this.#asked(name, { method: "GET" }, most);
    }
    /** Answers of a length that is known. Raises WireError for another length. */
    async answers(name, queries, size) {
        const headers = { "Content-Type": TILE_QUERIES_TYPE };
        const found = await this.#asked(name, { method: "POST", headers, body: queries.slice(), cache: "no-store" }, size);
        if (found.length !== size)
            throw new WireError(`${this.url} answered ${found.length} bytes, and ${size} were due`);
        return found;
    }
    async #asked(name, init, most) {
        const signal = AbortSignal.timeout(this.#timeoutMs);
        const options = { redirect: "error", credentials: "omit", referrerPolicy: "no-referrer", signal, ...init };
        try {
            const response = await this.#fetch(`${this.url}/${name}`, options);
            if (!response.ok)
                throw new Unreachable(`${this.url}/${name} cannot be had (status ${response.status}); try again later`);
            const reader = response.body?.getReader(), parts = [];
            let length = 0;
            for (let part = await reader?.read(); part && !part.done; part = await reader.read()) {
                length += part.value.length;
                if (length > most) {
                    await reader?.cancel();
                    throw new WireError(`${this.url}/${name} is longer than the ${most} bytes that it may have`);
                }
                parts.push(part.value);
            }
            return concatenated(...parts);
        }
        catch (error) {
            if (error instanceof Unreachable || error instanceof WireError)
                throw error;
            throw new Unreachable(`${this.url} does not answer; try again later`);
        }
    }
}
