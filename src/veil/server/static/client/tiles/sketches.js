/** Tiles that a photograph looks like, by words that occur in them, without asking anyone (veil.tiles.sketches). */
import { dotProducts } from "../dot_products.js";
/** Share of a query's features that a tile must explain by its own words. */
const OWN = 0.4;
const BLOCK = 512, MOST_LEVEL = 32767;
/** Tiles from the likeliest for some compressed descriptors (rows of `axes`) to the least. */
export function ranked({ words, counts }, vectors, axes) {
    const count = words.length / axes, tiles = counts.length / count;
    // A repeated pattern says less than it occurs.
    const seen = nearestCounts(words, vectors, axes).map(Math.sqrt), ofAll = new Float64Array(count);
    let total = 0.5 * count;
    counts.forEach((value, at) => {
        ofAll[at % count] += value;
        total += value;
    });
    const scores = Float64Array.from({ length: tiles }, (_, tile) => {
        const own = counts.subarray(tile * count, (tile + 1) * count), sum = Math.max(own.reduce((a, b) => a + b, 0), 1);
        let score = 0;
        for (let word = 0; word < count; word++) {
            if (seen[word] > 0)
                score += seen[word] * Math.log((OWN * (own[word] / sum)) / ((ofAll[word] + 0.5) / total) + (1 - OWN));
        }
        return score;
    });
    return Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a] || a - b);
}
/** How often each word is the nearest to a vector, by direction. */
function nearestCounts(words, vectors, axes) {
    const count = words.length / axes, rows = vectors.length / axes, out = new Float64Array(count);
    const lengthOf = (word) => Math.hypot(...words.subarray(word * axes, (word + 1) * axes));
    const inverse = Float64Array.from({ length: count }, (_, word) => 1 / lengthOf(word));
    const scaled = new Int16Array(vectors.length);
    for (let row = 0; row < rows; row++) {
        let most = 1e-30;
        for (let i = row * axes; i < (row + 1) * axes; i++)
            most = Math.max(most, Math.abs(vectors[i]));
        for (let i = row * axes; i < (row + 1) * axes; i++)
            scaled[i] = Math.round((vectors[i] * MOST_LEVEL) / most);
    }
    if (rows === 0)
        return out;
    const products = dotProducts(scaled, Int16Array.from(words), axes, BLOCK);
    const best = new Float64Array(rows).fill(-Infinity), nearest = new Int32Array(rows);
    for (let first = 0; first < count; first += BLOCK) {
        const block = Math.min(BLOCK, count - first);
        for (let row = 0; row < rows; row++) {
            const found = products(row, first, block);
            let most = best[row], word = nearest[row];
            for (let i = 0; i < block; i++) {
                const score = found[i] * inverse[first + i];
                if (score > most)
                    [most, word] = [score, first + i];
            }
            best[row] = most;
            nearest[row] = word;
        }
    }
    for (const word of nearest)
        out[word]++;
    return out;
}
