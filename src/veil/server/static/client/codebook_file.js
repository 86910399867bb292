/** Dictionaries from the .npz files that `veil codebook build` writes; their hash is computed anew, not believed. */
import { concatenated, hex, utf8, viewOf } from "./bytes.js";
import { Dictionary } from "./dictionary.js";
import { sha256 } from "./digests.js";
import { InputError, RuntimeLacks, needed } from "./errors.js";
import { shortest } from "./numbers.js";
const FORMAT = 1;
const MOST_BYTES = 2 ** 30;
/**
 * The dictionary in a codebook's file.
 *
 * Raises InputError if it is damaged, foreign, or does not match its hash, and RuntimeLacks where nothing can unpack it.
 */
export async function readDictionary(file) {
    try {
        return await read(file);
    }
    catch (error) {
        if (error instanceof InputError || error instanceof RuntimeLacks)
            throw error;
        throw new InputError(`the file is not a veil codebook or is damaged (${String(error)}); get it again`);
    }
}
async function read(file) {
    const members = directory(file);
    const array = async (name) => {
        const member = members.get(`${name}.npy`);
        if (member === undefined)
            throw new InputError(`the file is not a veil codebook: it has no ${name}`);
        return npy(await inflated(file, member));
    };
    const header = JSON.parse(new TextDecoder().decode((await array("header")).data));
    if (header.format !== FORMAT)
        throw new InputError(`the codebook has format ${header.format}, this veil reads ${FORMAT}`);
    if (header.kind !== "centroids")
        throw new InputError("the codebook is a pool of decoys; words come from a dictionary");
    const words = await array("words"), digests = await array("image_digests");
    const pca = members.has("pca_axes.npy") ? [await array("pca_mean"), await array("pca_axes")] : null;
    if (words.dtype !== "|u1" && words.dtype !== "<f4")
        throw new InputError(`words of type ${words.dtype} are not known`);
    const imageDigests = Array.from({ length: digests.data.length / 8 }, (_, i) => hex(digests.data.slice(8 * i, 8 * i + 8)));
    const digest = digestOf(header, words, pca, imageDigests);
    if (digest !== header.digest) {
        throw new InputError("the codebook's stored hash does not match its contents; get the file again");
    }
    const { descriptor, normalization } = header;
    const stored = words.dtype === "|u1" ? words.data.slice() : new Float32Array(words.data.slice().buffer);
    return new Dictionary({ descriptor, normalization, dim: words.shape[1], stored, digest, imageDigests });
}
/** SHA-256 (hex) of everything that changes results or provenance (veil.codebooks.codebook, `digest`). */
function digestOf(header, words, pca, imageDigests) {
    const facts = {
        descriptor: text(header.descriptor),
        dither_steps: shortest(header.dither_steps),
        dtype: text(words.dtype),
        kind: text(header.kind),
        normalization: text(header.normalization),
        pca: pca === null ? "null" : list(pca[1].shape.map(String)),
        provenance: list([header.source, header.license, ...imageDigests].map(text)),
        shape: list(words.shape.map(String)),
        slices: String(header.slices),
    };
    const json = `{${Object.entries(facts).map(([name, value]) => `"${name}": ${value}`).join(", ")}}`;
    return hex(sha256(concatenated(utf8(json), words.data, ...(pca ?? []).map((item) => item.data))));
}
function list(items) {
    return `[${items.join(", ")}]`;
}
/** A text as Python's JSON in ASCII has it. */
function text(value) {
    return JSON.stringify(value).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
/** Members of a ZIP archive by name, from its central directory. */
function directory(file) {
    const view = viewOf(file);
    let end = file.length - 22;
    while (end >= 0 && view.getUint32(end, true) !== 0x06054b50)
        end--;
    if (end < 0)
        throw new InputError("the file is not a veil codebook: it is no .npz archive");
    const found = new Map();
    let at = view.getUint32(end + 16, true);
    for (let i = view.getUint16(end + 10, true); i > 0; i--) {
        if (view.getUint32(at, true) !== 0x02014b50)
            throw new InputError("the codebook's archive is damaged; get it again");
        const length = view.getUint16(at + 28, true);
        const name = new TextDecoder().decode(file.subarray(at + 46, at + 46 + length));
        found.set(name, {
            method: view.getUint16(at + 10, true),
            crc: view.getUint32(at + 16, true),
            packed: view.getUint32(at + 20, true),
            size: view.getUint32(at + 24, true),
            start: view.getUint32(at + 42, true),
        });
        at += 46 + length + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
    }
    return found;
}
/** The bytes of a member. */
async function inflated(file, member) {
    if (member.size > MOST_BYTES)
        throw new InputError("the codebook is too large to be one of veil's");
    const view = viewOf(file);
    const start = member.start + 30 + view.getUint16(member.start + 26, true) + view.getUint16(member.start + 28, true);
    const packed = file.slice(start, start + member.packed);
    if (member.method === 0)
        return packed;
    const stream = new Blob(gzipped(packed, member)).stream().pipeThrough(gunzip());
    const out = new Uint8Array(member.size);
    let at = 0;
    const reader = stream.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
        if (at + part.value.length > out.length)
            throw new InputError("the codebook's archive is damaged; get it again");
        out.set(part.value, at);
        at += part.value.length;
    }
    if (at !== out.length)
        throw new InputError("the codebook's archive is damaged; get it again");
    return out;
}
/** A packed member as a gzip file (RFC 1952): Node.js unpacks bare deflate from 20.12 and 21.2 on, gzip in all versions. */
function gzipped(packed, member) {
    const end = new DataView(new ArrayBuffer(8));
    end.setUint32(0, member.crc, true);
    end.setUint32(4, member.size, true);
    return [new Uint8Array([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]), packed, end];
}
/** A stream that unpacks gzip. Raises RuntimeLacks where there is none. */
function gunzip() {
    return new (needed(globalThis.DecompressionStream, "DecompressionStream"))("gzip");
}
/** An array in NumPy's format, rows first; a file may hold its columns first. */
function npy(bytes) {
    const view = viewOf(bytes), isOld = bytes[6] === 1;
    const start = isOld ? 10 : 12;
    const length = isOld ? view.getUint16(8, true) : view.getUint32(8, true);
    const header = new TextDecoder().decode(bytes.subarray(start, start + length));
    const found = /^\{'descr': '([^']+)', 'fortran_order': (False|True), 'shape': \(([\d, ]*)\), \}/.exec(header);
    if (found === null)
        throw new InputError("the codebook holds an array that veil did not write");
    const shape = found[3].split(",").filter((part) => part.trim() !== "").map(Number);
    const data = bytes.subarray(start + length);
    const items = shape.reduce((product, side) => product * side, 1);
    const size = Number(found[1].at(-1));
    if (data.length !== items * size)
        throw new InputError("the codebook holds a truncated array");
    return { dtype: found[1], shape, data: found[2] === "True" ? rowsFirst(data, shape, size) : data };
}
/** Items of `size` bytes that a file has column by column, row by row. */
function rowsFirst(data, shape, size) {
    if (shape.length < 2)
        return data;
    const [rows, columns] = shape, out = new Uint8Array(data.length);
    for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
            out.set(data.subarray(size * (column * rows + row), size * (column * rows + row + 1)), size * (row * columns + column));
        }
    }
    return out;
}
