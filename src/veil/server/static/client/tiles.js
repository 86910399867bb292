/**
 * Private tiles: pieces of a public map from servers that cannot tell which (docs/theory/tiles.md#fetching).
 *
 * Every fetch asks for as many tiles as all devices ask for, at once, whatever is wanted and whatever came of it before.
 */
import { hex } from "./bytes.js";
import { sha256 } from "./digests.js";
import { InputError, WireError } from "./errors.js";
import { EXITS, defaultExit, exitOf } from "./tiles/exits.js";
import { Host } from "./tiles/host.js";
import { boxesOf, factsOf, provesRoot } from "./tiles/manifest.js";
import { randomBelow } from "./tiles/uniform.js";
export { TILE_QUERIES_TYPE } from "./tiles/host.js";
const MOST_JSON = 1 << 20, MOST_BINARY = 1 << 28, MOST_MAP = 1 << 28;
/** Tiles of one map, at one server or at several that do not all collude. */
export class TileServers {
    facts;
    boxes;
    exit;
    way;
    parts;
    constructor(facts, 
    /** Corners of the box around the cameras of each tile: x, y, z of the low one, then of the high one. */
    boxes, 
    /** The name of the exit by which tiles are fetched. */
    exit, way, 
    /** The manifest's text and arrays, as they were verified. */
    parts) {
        this.facts = facts;
        this.boxes = boxes;
        this.exit = exit;
        this.way = way;
        this.parts = parts;
    }
    /** What a fetch promises, as a sentence. */
    get guarantee() {
        return this.way.guarantee;
    }
    /**
     * Open tiles at the address of a server such as https://maps.example.org/v1/tiles/station, or at those of several that others
     * run.
     *
     * The manifest is downloaded here, and the hint of the exit "one-server"; all that is fetched later has one size. Raises
     * InputError for what is no such address, for plain http to another machine and for an exit that is not there; Unreachable if
     * a server does not answer; WireError for a manifest, facts of an exit or a hint that are none, and where servers do not have
     * the same version.
     */
    static async open(urls, options = {}) {
        const { exit, mostBytes = MOST_MAP } = options;
        if (exit !== undefined && !EXITS.includes(exit))
            throw new InputError(`an exit is ${EXITS.join(", ")}, got ${String(exit)}`);
        const hosts = urls.map((url) => new Host(url, options));
        if (hosts.length < 1 || new Set(hosts.map(({ url }) => url)).size < hosts.length) {
            throw new InputError("give one address of tiles, or different ones of servers that do not collude");
        }
        if (exit === "two-servers" && hosts.length < 2) {
            throw new InputError("this exit takes the addresses of two servers or more, which others run; give them all");
        }
        const all = await Promise.all(hosts.map((host) => host.served())), served = all[0], { version } = served;
        if (all.some((other) => other.version !== version)) {
            throw new WireError("the servers do not have the same tiles; try again later");
        }
        if (options.version !== undefined && options.version !== version) {
            throw new WireError("the servers have another version of the tiles than is asked for; do not use it");
        }
        const text = new TextDecoder().decode(await hosts[0].file(`${version}/manifest.json`, MOST_JSON));
        const { facts, binaryDigest } = factsOf(text, version);
        const binary = await hosts[0].file(`${version}/manifest.bin`, MOST_BINARY);
        if (hex(sha256(binary)) !== binaryDigest || binary.length < 48 * facts.tiles) {
            throw new WireError("the manifest's parts do not belong together; try again later");
        }
        const source = { hosts, served, facts, mostBytes }, name = exit ?? defaultExit(source);
        return new TileServers(facts, boxesOf(binary, facts.tiles), name, await exitOf(name, source), { text, binary });
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
        const { tiles: count, asked, tileBytes, root } = this.facts;
        const isThere = (tile) => Number.isInteger(tile) && tile >= 0 && tile < count;
        if (new Set(wanted).size < wanted.length || wanted.length > asked || !wanted.every(isThere)) {
            throw new InputError(`at most ${asked} different tiles from 0 to ${count - 1} can be wanted`);
        }
        const indices = withDummies(wanted, count, asked), records = await this.way.fetch(indices);
        const tiles = new Map(), refused = new Map();
        indices.forEach((index, at) => {
            const record = records[at], data = record.slice(0, tileBytes);
            // Dummies are proved, too, so that the time until the next request does not tell how many there were.
            const isProved = provesRoot(data, index, record.subarray(tileBytes), root);
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
