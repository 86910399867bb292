/** One server of tiles: requests without a token or a cookie, each sent once. */
import { concatenated } from "../bytes.js";
import { Unreachable } from "../connection.js";
import { InputError, WireError, needed } from "../errors.js";
import { canonicalJson } from "../json.js";
export const TILE_QUERIES_TYPE = "application/vnd.veil.tile-queries";
const LOCAL = ["127.0.0.1", "localhost", "[::1]"], MOST_EXITS = 1 << 16;
/** The address of some tiles. */
export class Host {
    url;
    #timeoutMs;
    #fetch;
    /** Raises InputError for what is no address, and for plain http to another machine. */
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
    /** What this server says of its tiles. Raises WireError if it names none. */
    async served() {
        const text = new TextDecoder().decode(await this.file("exits.json", MOST_EXITS));
        const { version, exits } = Object(JSON.parse(canonicalJson(text)));
        if (typeof version !== "string" || !/^[0-9a-f]{64}$/.test(version) || typeof exits !== "object" || exits === null) {
            throw new WireError(`${this.url} does not say which tiles it has; check the address`);
        }
        return { version, exits: exits };
    }
    /** A file of at most `most` bytes. */
    async file(name, most) {
        return this.#asked(name, { method: "GET" }, most);
    }
    /** A file of a length that is known. Raises WireError for another length. */
    async sized(name, size) {
        return this.#due(await this.file(name, size), size);
    }
    /** Answers of a length that is known. Raises WireError for another length. */
    async answers(name, queries, size) {
        const headers = { "Content-Type": TILE_QUERIES_TYPE };
        return this.#due(await this.#asked(name, { method: "POST", headers, body: queries.slice(), cache: "no-store" }, size), size);
    }
    #due(data, size) {
        if (data.length !== size) {
            throw new WireError(`${this.url} answered ${data.length} bytes, and ${size} were due; try again later`);
        }
        return data;
    }
    async #asked(name, init, most) {
        const signal = AbortSignal.timeout(this.#timeoutMs);
        const options = { redirect: "error", credentials: "omit", referrerPolicy: "no-referrer", signal, ...init };
        try {
            const response = await this.#fetch(`${this.url}/${name}`, options);
            if (!response.ok)
                throw this.#refused(name, response.status, init.method === "POST");
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
    #refused(name, status, isFetch) {
        if (isFetch && status === 404)
            return new Unreachable(`${this.url} has this version of the tiles no more; open them again`);
        if (isFetch && status === 503)
            return new Unreachable(`${this.url} is busy; nothing was fetched: fetch again in a moment`);
        return new Unreachable(`${this.url}/${name} cannot be had (status ${status}); try again later`);
    }
}
