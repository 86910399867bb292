/** Ways to fetch tiles, by the names that they have in Python (docs/theory/tiles.md#fetching). */
import { concatenated, hex } from "../bytes.js";
import { sha256 } from "../digests.js";
import { InputError, WireError } from "../errors.js";
import { Hintless } from "./hintless.js";
import { OneServer, hintBytes } from "./one_server.js";
import { Queries, piece } from "./queries.js";
import { queriesFor, xorInto } from "./two_servers.js";
/** Names of the exits: all tiles at once, from two servers or more, from one server with a hint, and without one. */
export const EXITS = ["region", "two-servers", "one-server", "hintless"];
// Maps of fewer bytes are downloaded as a whole where nobody says otherwise; a hint of more bytes is not downloaded.
const REGION_BYTES = 16 << 20, MOST_HINT = 1 << 28;
/** The exit where nobody says which: a function of the map and of the addresses. */
export function defaultExit({ hosts, served, facts }) {
    if (facts.tiles * facts.recordBytes <= REGION_BYTES)
        return "region";
    if (hosts.length > 1)
        return "two-servers";
    return ["hintless", "one-server"].find((name) => name in served.exits) ?? "region";
}
/** The exit of a name. Raises InputError where it is not offered, WireError for facts of it that no device should use. */
export async function exitOf(name, source) {
    const { hosts, served, facts, mostBytes } = source, { tiles, recordBytes, version } = facts, host = hosts[0];
    if (name === "region") {
        if (tiles * recordBytes > mostBytes) {
            throw new InputError(`the map has ${tiles * recordBytes} bytes, more than ${mostBytes}; fetch a part of it from two servers, or allow more`);
        }
        return new Region(() => host.sized(`${version}/tiles.bin`, tiles * recordBytes), recordBytes);
    }
    if (name === "two-servers")
        return new TwoServers(hosts, facts);
    if (hosts.length !== 1 || !(name in served.exits)) {
        throw new InputError(`the exit ${name} takes one address, of a server that offers it; or fetch from two servers`);
    }
    const send = (queries, size) => host.answers(`${version}/answers/${name}`, queries, size);
    const said = served.exits[name];
    if (name === "hintless")
        return new FromOne(Hintless.of(said, tiles, recordBytes), send);
    const { layout, seed, hintDigest } = OneServer.facts(said, tiles, recordBytes), size = hintBytes(layout);
    if (size > MOST_HINT)
        throw new InputError(`the hint has ${size} bytes, more than ${MOST_HINT}; take another exit`);
    const hint = await host.sized(`${version}/hint.bin`, size);
    if (hex(sha256(hint)) !== hintDigest)
        throw new WireError(`the hint of ${host.url} is not the one that it names; open again`);
    return new FromOne(new OneServer(layout, seed, hint), send);
}
/** All records at once: nothing that is sent depends on which are wanted. They are read once, at the first fetch. */
class Region {
    read;
    size;
    guarantee = "No server learns which records a session fetched, however much it computes; each server learns that the whole map was " +
        "downloaded, when and from which network address.";
    #records;
    constructor(read, size) {
        this.read = read;
        this.size = size;
    }
    async fetch(indices) {
        const records = (this.#records ??= await this.read());
        return indices.map((index) => piece(records, index, this.size).slice());
    }
}
/** Records from two servers or more that do not all collude. */
class TwoServers {
    hosts;
    facts;
    constructor(hosts, facts) {
        this.hosts = hosts;
        this.facts = facts;
    }
    get guarantee() {
        return (`While at least 1 of ${this.hosts.length} servers keeps to itself what it receives, no server learns which records a ` +
            "session fetched, however much it computes; each server learns how many records were asked for, when and from which " +
            "network address.");
    }
    async fetch(indices) {
        const { tiles, recordBytes, version } = this.facts;
        const queries = indices.map((index) => queriesFor(index, tiles, this.hosts.length));
        // All servers are asked at once, and whether one fails changes nothing for the others.
        const answers = await Promise.allSettled(this.hosts.map((host, server) => {
            const own = concatenated(...queries.map((shares) => shares[server]));
            return host.answers(`${version}/answers/two-servers`, own, indices.length * recordBytes);
        }));
        const whole = new Uint8Array(indices.length * recordBytes);
        for (const answer of answers) {
            if (answer.status === "rejected")
                throw answer.reason;
            xorInto(whole, answer.value);
        }
        return indices.map((_, at) => piece(whole, at, recordBytes));
    }
}
/** Records from a single server, which only sees encrypted queries. */
class FromOne {
    scheme;
    send;
    constructor(scheme, send) {
        this.scheme = scheme;
        this.send = send;
    }
    get guarantee() {
        return this.scheme.guarantee;
    }
    async fetch(indices) {
        const queries = new Queries(indices, this.scheme), { parts, answerBytes } = this.scheme.layout;
        return queries.decode(await this.send(queries.bytes, indices.length * parts * answerBytes));
    }
}
