/** veil in TypeScript: release photographs in words under an epsilon, and ask a veil server for their poses. */

export type { Accepted, GeoPose, JobStatus, Localization, RemoteMap, Rigid } from "./answers.js";
export type { Budget, BudgetUnit } from "./budget.js";
export { type Camera, type CameraModel, FROM_EXIF, MODELS, SENT_DEVIATIONS, guessedCamera } from "./camera.js";
export { type ClientOptions, VeilClient } from "./client.js";
export { readDictionary } from "./codebook_file.js";
export { decode, encode, messageLength } from "./codec.js";
export { type Charge, basicEpsilon, composedEpsilon } from "./composition.js";
export { type ConnectionOptions, MESSAGE_TYPE, Unreachable, VeilProblem } from "./connection.js";
export { Device, type DeviceRelease, type HideInWords } from "./device.js";
export { Dictionary, type DictionaryFacts } from "./dictionary.js";
export { InputError, ReleaseRefused, type Remedy, RuntimeLacks, VeilError, WireError } from "./errors.js";
export type { Features, Normalization } from "./features.js";
export { type GeoPoseAnswer, GeoPoseClient, type GeoPoseReadings, geoposeRequest, sanitization } from "./geopose.js";
export { HEAD_BYTES, type Head, hasLines, hasWords, readHead } from "./head.js";
export { IndexedDbStore } from "./indexeddb_store.js";
export { Ledger } from "./ledger.js";
export { type MechanismParameters, SubsetMechanism } from "./mechanism.js";
export type { LineUpload, Lines, Message, Space, Subsets, Upload, Vector } from "./message.js";
export type { NearestWords } from "./nearest.js";
export { grayOf, imageDigest } from "./picture.js";
export type { Purpose } from "./repeats.js";
export { type Receipt, type ReceiptLink, receiptOf, requireInChain } from "./receipts.js";
export { type GrayImage, type SiftFeatures, type SiftOptions, extractSift } from "./sift.js";
export { type Change, type Entry, type Held, MemoryStore, type SealedDraws, type Sending, type Store } from "./store.js";
export { type FetchedTiles, type TileExit, type TileFacts, type TileOptions, TileServers } from "./tiles.js";
export type { Image } from "./words.js";
