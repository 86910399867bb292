/** Small loops in WebAssembly (core specification, 5.4 and 5.5), assembled here: no compiler is needed, and no file is fetched. */

export const get = (local: number): number[] => [0x20, local];
export const set = (local: number): number[] => [0x21, local];
export const tee = (local: number): number[] => [0x22, local];
/** A whole number from 0 to 8191; the encoding has a sign, so it takes two bytes from 64 on. */
export const constant = (value: number): number[] => [0x41, ...(value < 64 ? [value] : [(value & 127) | 128, value >> 7])];
export const ADD = 0x6a, BELOW = 0x49, LOOP = [0x03, 0x40], AGAIN = [0x0d, 0x00], END = 0x0b, STORE = [0x36, 0x02, 0x00];
const PAGE = 1 << 16;

/** A function of some i32 parameters with the code `body` (local variables, then instructions), and memory of `bytes` bytes. */
export function assembled(parameters: number, body: readonly number[], bytes: number) {
  try {
    const memory = new WebAssembly.Memory({ initial: Math.ceil(bytes / PAGE) });
    const module = new WebAssembly.Module(moduleOf(parameters, body));
    const run = new WebAssembly.Instance(module, { a: { m: memory } }).exports.f as (...values: number[]) => void;
    return { run, buffer: memory.buffer };
  } catch {
    return null; // the engine lacks an instruction or the memory, or the page forbids to compile (`wasm-unsafe-eval`)
  }
}

/** A module that imports a memory as `a.m` and exports the function as `f`. */
function moduleOf(parameters: number, body: readonly number[]): Uint8Array<ArrayBuffer> {
  return Uint8Array.of(
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, 1, 0x60, parameters, ...new Array<number>(parameters).fill(0x7f), 0),
    ...section(2, 1, 1, 0x61, 1, 0x6d, 0x02, 0x00, 1),
    ...section(3, 1, 0),
    ...section(7, 1, 1, 0x66, 0x00, 0),
    ...section(10, 1, ...leb(body.length), ...body),
  );
}

function section(id: number, ...content: number[]): number[] {
  return [id, ...leb(content.length), ...content];
}

/** A whole number below 2^14 in the encoding of WebAssembly. */
function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, value >> 7];
}
