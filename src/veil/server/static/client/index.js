/** veil in TypeScript: release photographs in words under an epsilon, and ask a veil server for their poses. */
export { MODELS, guessedCamera } from "./camera.js";
export { VeilClient } from "./client.js";
export { readDictionary } from "./codebook_file.js";
export { decode, encode, messageLength } from "./codec.js";
export { basicEpsilon, composedEpsilon } from "./composition.js";
export { MESSAGE_TYPE, Unreachable, VeilProblem } from "./connection.js";
export { Device } from "./device.js";
export { Dictionary } from "./dictionary.js";
export { InputError, ReleaseRefused, VeilError, WireError } from "./errors.js";
export { GeoPoseClient, geoposeRequest, sanitization } from "./geopose.js";
export { HEAD_BYTES, hasLines, hasWords, readHead } from "./head.js";
export { IndexedDbStore } from "./indexeddb_store.js";
export { Ledger } from "./ledger.js";
export { SubsetMechanism } from "./mechanism.js";
export { grayOf, imageDigest } from "./picture.js";
export { receiptOf, requireInChain } from "./receipts.js";
export { extractSift } from "./sift.js";
export { MemoryStore } from "./store.js";
