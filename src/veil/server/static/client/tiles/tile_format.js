/** Bytes of a tile: whole numbers, little-endian, filled up to the size of all tiles of a map (docs/reference/tiles.md). */
import { viewOf } from "../bytes.js";
import { WireError } from "../errors.js";
const MAGIC = "VEILTILE", VERSION = 1, HEADER = 56;
const PLACE_MASK = (1 << 21) - 1;
const FARTHEST = 2 ** 52;
const MOST_POINTS = 1 << 20, MOST_ASPECTS = 4;
/**
 * The tile of some bytes, which may come from anyone: every number is checked before it is used.
 *
 * `index`, `axes` and `bits` are what the manifest says of it. Raises WireError for anything else.
 */
export function decodeTile(data, expected) {
    if (data.length < HEADER || String.fromCharCode(...data.subarray(0, 8)) !== MAGIC) {
        throw new WireError("this is no tile: it is too short, or does not begin as one");
    }
    const view = viewOf(data), { index, axes, bits } = expected;
    const [version, ownAxes, ownBits, zero] = [8, 10, 12, 14].map((at) => view.getUint16(at, true));
    const numbers = [16, 20, 24, 28].map((at) => view.getUint32(at, true));
    const [ownIndex, points, aspects, reserved] = numbers;
    if (version !== VERSION) {
        throw new WireError(`a tile of version ${version} cannot be read; update veil, or cut the map again`);
    }
    if (ownAxes !== axes || ownBits !== bits || ownIndex !== index || zero !== 0 || reserved !== 0) {
        throw new WireError(`tile ${ownIndex} of ${ownAxes} axes with ${ownBits} bits is not tile ${index} of the manifest`);
    }
    if (!(points <= aspects && aspects <= MOST_ASPECTS * points && points <= MOST_POINTS)) {
        throw new WireError(`a tile cannot have ${points} points with ${aspects} aspects`);
    }
    const origin = [32, 40, 48].map((at) => Number(view.getBigInt64(at, true)));
    if (origin.some((value) => !(Math.abs(value) <= FARTHEST)))
        throw new WireError("a tile's origin is too far away");
    const ends = [HEADER, 8 * points, points, 2 * aspects, 2 * aspects, (aspects * axes * bits) / 8];
    for (let part = 1; part < ends.length; part++)
        ends[part] += ends[part - 1];
    const [, , , , , end] = ends;
    if (end > data.length) {
        throw new WireError(`the tile is truncated: ${points} points take ${end} bytes, and it has ${data.length}`);
    }
    if (data.subarray(end).some((byte) => byte !== 0))
        throw new WireError("a tile's filling must be zero");
    const part = (number) => data.subarray(ends[number], ends[number + 1]);
    const counts = part(1);
    if (counts.some((count) => count < 1 || count > MOST_ASPECTS) || counts.reduce((sum, count) => sum + count, 0) !== aspects) {
        throw new WireError("a tile's points must each have between one and four aspects, and all of them together");
    }
    return {
        index,
        origin,
        places: placesOf(part(0)),
        counts,
        directions: part(2),
        sizes: part(3),
        descriptors: levelsOf(part(4), bits),
    };
}
/** Three numbers of 21 bits in each 64, the first in the lowest bits. */
function placesOf(packed) {
    const view = viewOf(packed), out = new Uint32Array((3 * packed.length) / 8);
    for (let at = 0, to = 0; at < packed.length; at += 8, to += 3) {
        const low = view.getUint32(at, true), high = view.getUint32(at + 4, true);
        if (high >>> 31)
            throw new WireError("a tile's places have bits that must be zero");
        out[to] = low & PLACE_MASK;
        out[to + 1] = (low >>> 21) | ((high & 0x3ff) << 11);
        out[to + 2] = high >>> 10;
    }
    return out;
}
/** Levels of 8 bits, or of 4 with the earlier axis in the lower half of each byte. */
function levelsOf(packed, bits) {
    const levels = new Int8Array((packed.length * 8) / bits);
    if (bits === 8)
        levels.set(packed);
    else {
        for (let at = 0; at < packed.length; at++) {
            levels[2 * at] = (packed[at] << 28) >> 28;
            levels[2 * at + 1] = (packed[at] << 24) >> 28;
        }
    }
    const none = -(1 << (bits - 1));
    if (levels.some((level) => level === none))
        throw new WireError("a tile's descriptors hold a level that has no meaning");
    return levels;
}
