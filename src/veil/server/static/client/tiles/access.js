/** Localization on the device in tiles of a map: choose tiles, fetch once, match, estimate (docs/theory/tiles.md). */
import { utf8 } from "../bytes.js";
import { requireInside, requirePlausible } from "../intrinsics.js";
import { InputError, VeilError } from "../errors.js";
import { placeInMap } from "../geometry/georeference.js";
import { limitsOf } from "../poses/options.js";
import { TileServers } from "../tiles.js";
import { MemoryTileCache } from "./cache.js";
import { decodeManifest } from "./tile_manifest.js";
import { LocalizerWorker, Overtime } from "./workers.js";
/** Time for the extraction of features, beside that of the search. */
const EXTRACTION_S = 60;
/** Tiles of one map, in which photographs are localized on this device. */
export class MapTiles {
    version;
    manifest;
    servers;
    cache;
    #worker;
    constructor(
    /** SHA-256 (hex) that stands for all bytes of the tiles. */
    version, manifest, servers, cache, parts) {
        this.version = version;
        this.manifest = manifest;
        this.servers = servers;
        this.cache = cache;
        this.#worker = new LocalizerWorker({ kind: "open", ...parts });
    }
    /**
     * Open a map's tiles at the address of a server, or at those of several that others run, as `TileServers.open` does.
     *
     * Raises what that raises, and InputError offline where nothing is kept.
     */
    static async open(urls, options = {}) {
        const { cache = new MemoryTileCache(), offline = false, ...access } = options;
        if (offline)
            return MapTiles.#kept(urls, cache, options.version);
        const servers = await TileServers.open(urls, access), { parts, facts: { version } } = servers;
        const made = new MapTiles(version, decodeManifest(parts.text, parts.binary), servers, cache, parts);
        await cache.put(`${version}/manifest.json`, utf8(parts.text));
        await cache.put(`${version}/manifest.bin`, parts.binary);
        await cache.put(`current ${[...urls].sort().join(" ")}`, utf8(version));
        return made;
    }
    static async #kept(urls, cache, version) {
        const named = await cache.get(`current ${[...urls].sort().join(" ")}`);
        const wanted = version ?? (named === null ? "" : new TextDecoder().decode(named));
        const [text, binary] = await Promise.all(["json", "bin"].map((end) => cache.get(`${wanted}/manifest.${end}`)));
        if (text == null || binary == null) {
            throw new InputError("nothing of these tiles is kept on this device; open them online once");
        }
        const parts = { text: new TextDecoder().decode(text), binary };
        return new MapTiles(wanted, decodeManifest(parts.text, binary), null, cache, parts);
    }
    /** What a fetch promises, as a sentence; offline nothing is fetched. */
    get guarantee() {
        return this.servers?.guarantee ?? "Nothing is fetched.";
    }
    /**
     * Localize a photograph: its features choose tiles, one fetch asks for as many as all devices ask for, and a worker matches.
     *
     * Every call fetches once (not offline), also where the photograph then gives no pose. Features, the tiles that they look like
     * and the pose stay on this device. Raises InputError for features or a camera that cannot be used, before anything is sent,
     * and what `TileServers.fetch` raises.
     */
    async localize(photograph, use = {}) {
        const { options = {}, most } = use, { maxSeconds } = limitsOf(options), near = this.#near(use);
        if (most !== undefined && !(most >= 1))
            throw new InputError(`at least one tile is needed, got ${most}`);
        requirePhotograph(photograph);
        return this.#worker.run(async (done) => {
            const looked = await done({ kind: "look", photograph, ...(near === undefined ? {} : { near }) }, EXTRACTION_S + maxSeconds);
            const wanted = looked.kind === "looked" ? looked.wanted.slice(0, most) : [];
            const { tiles, refused } = await this.#fetched(wanted);
            const held = wanted.flatMap((index) => (tiles.has(index) ? [[index, tiles.get(index)]] : []));
            const asked = this.servers === null ? 0 : this.manifest.asked;
            try {
                const localized = await done({ kind: "localize", tiles: held, options }, 1.5 * maxSeconds + 5);
                if (localized.kind !== "localized")
                    throw new VeilError("the worker answered another job");
                return { pose: localized.pose, wanted, refused: new Map([...refused, ...localized.unread]), asked };
            }
            catch (error) {
                if (!(error instanceof Overtime))
                    throw error;
                const evidence = { inliers: 0, correspondences: 0, log10Nfa: Infinity };
                return { pose: { status: "no pose", reason: error.message, evidence }, wanted, refused, asked };
            }
        });
    }
    /** End the worker. */
    async close() {
        await this.#worker.close();
    }
    #near({ near, within = 0, fix }) {
        if (fix === undefined)
            return near === undefined ? undefined : { place: near, within };
        const { place } = this.manifest;
        if (place === null) {
            throw new InputError("nobody said where on Earth this map is, so a GPS fix does not help; give a place in the map");
        }
        return { place: placeInMap(place, ...fix), within };
    }
    /** The wanted tiles: one fetch, whatever is kept; what is kept stands in for those that came back changed. */
    async #fetched(wanted) {
        const name = (index) => `${this.version}/${index}`, tiles = new Map();
        const refused = new Map();
        if (this.servers !== null) {
            const fetched = await this.servers.fetch(wanted);
            for (const [index, why] of fetched.refused)
                refused.set(index, why);
            for (const [index, bytes] of fetched.tiles) {
                tiles.set(index, bytes);
                await this.cache.put(name(index), bytes);
            }
        }
        for (const index of wanted) {
            if (tiles.has(index))
                continue;
            const kept = await this.cache.get(name(index));
            if (kept !== null)
                tiles.set(index, kept);
            else if (this.servers === null)
                refused.set(index, "it is not kept on this device, and nothing is fetched offline");
        }
        return { tiles, refused };
    }
}
/** Raise InputError unless a photograph has pixels or features, and a camera of their size. */
function requirePhotograph({ camera, features, image }) {
    requirePlausible(camera);
    const picture = features ?? image;
    if (picture === undefined)
        throw new InputError("a photograph has pixels or features; give `image` or `features`");
    if (picture.width !== camera.widthPx || picture.height !== camera.heightPx) {
        throw new InputError(`the camera is of ${camera.widthPx} x ${camera.heightPx} px and the picture has ${picture.width} x ${picture.height}; ` +
            "give the picture's own");
    }
    if (features !== undefined)
        requireInside(camera, features.keypoints);
}
