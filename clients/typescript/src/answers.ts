/** What a server answers, as records; whatever it sends is checked. */

import { type Camera, type CameraModel, requireCamera } from "./camera.js";
import { type Remedy, WireError, remediesOf } from "./errors.js";

/** A map of a server; `facts` are all that the server says of it. */
export interface RemoteMap {
  id: string;
  name: string;
  mapped: boolean;
  version: number;
  /** SHA-256 (hex) of each dictionary in whose words it is asked. */
  dictionaries: readonly string[];
  facts: Readonly<Record<string, unknown>>;
}

/** A contribution that a server acknowledged. */
export interface Accepted {
  contribution: string;
  map: string;
  messageSha256: string;
  state: string;
  reason: string;
  /** The work that enters it; null if it was entered before. */
  job: string | null;
  /** End of the server's chain of receipts at the time; empty where it was not told. */
  receiptsHead: string;
}

/** How far a job is, and what came of it. */
export interface JobStatus {
  id: string;
  state: "queued" | "running" | "done" | "failed" | "cancelled";
  step: string;
  done: number;
  total: number;
  result: Readonly<Record<string, unknown>>;
}

/** A rotation (rows) and a translation. */
export interface Rigid {
  rotation: readonly (readonly number[])[];
  translation: readonly number[];
}

/** A pose on Earth: OGC GeoPose 1.0, Basic-Quaternion; the body's axes are x forward, y left, z up. */
export interface GeoPose {
  position: { lat: number; lon: number; h: number };
  quaternion: { x: number; y: number; z: number; w: number };
}

/** The answer to a query: a pose, or the reason why there is none. */
export type Localization =
  | {
      status: "localized";
      /** From the map's coordinates to the camera (x right, y down, z forward). */
      camFromWorld: Rigid;
      cameraCenter: readonly number[];
      /** Intrinsics with the focal length that was solved for with the pose; null from a server that does not tell it. */
      camera: Camera | null;
      /** 6 x 6, rotation (radians) first; null where it is not known. */
      covariance: readonly (readonly number[])[] | null;
      turnDeviationDeg: number | null;
      /** Null from a private map that is guarded against attacks through answers. */
      evidence: { inliers: number; correspondences: number; log10Nfa: number | null } | null;
      map: string;
      mapVersion: number;
      /** Where the map is on Earth and the pose is known there; null otherwise. */
      geopose: GeoPose | null;
    }
  | { status: "no pose"; reason: string; remedies: readonly Remedy[]; map: string };

type Values = Record<string, unknown>;

/** The answer to a query. Raises WireError for what is none. */
export function localizationOf(value: unknown): Localization {
  return checked("pose", () => {
    const said = object(value);
    if (said.status === "no pose") {
      return { status: "no pose", reason: text(said.reason), remedies: remediesOf(said.remedy), map: text(said.map) };
    }
    if (said.status !== "localized") throw new Error("its status is unknown");
    const pose = object(said.cam_from_world), evidence = said.evidence === null ? null : object(said.evidence);
    const camFromWorld = { rotation: matrix(pose.rotation, 3), translation: vector(pose.translation, 3) };
    requireRotation(camFromWorld.rotation);
    return {
      status: "localized",
      camFromWorld,
      cameraCenter: vector(said.camera_center, 3),
      camera: said.camera === undefined || said.camera === null ? null : cameraOf(said.camera),
      covariance: said.covariance === null ? null : matrix(said.covariance, 6),
      turnDeviationDeg: optional(said.turn_deviation_deg),
      evidence: evidence === null ? null : {
        inliers: number(evidence.inliers),
        correspondences: number(evidence.correspondences),
        log10Nfa: optional(evidence.log10_nfa),
      },
      map: text(said.map),
      mapVersion: number(said.map_version),
      geopose: said.geopose === undefined ? null : geoposeOf(said.geopose),
    };
  });
}

/** The camera of a pose. Throws for what is none. */
function cameraOf(value: unknown): Camera {
  const said = object(value);
  if (!Array.isArray(said.params)) throw new Error("the camera has no parameters");
  const camera: Camera = {
    model: text(said.model) as CameraModel,
    widthPx: number(said.width_px),
    heightPx: number(said.height_px),
    params: said.params.map(number),
    focalDeviation: number(said.focal_deviation),
  };
  requireCamera(camera);
  return camera;
}

/** A pose on Earth. Raises WireError for what is none. */
export function geoposeOf(value: unknown): GeoPose {
  return checked("GeoPose", () => {
    const { position, quaternion } = object(value);
    const [place, turn] = [object(position), object(quaternion)];
    const found = {
      position: { lat: number(place.lat), lon: number(place.lon), h: number(place.h) },
      quaternion: { x: number(turn.x), y: number(turn.y), z: number(turn.z), w: number(turn.w) },
    };
    const { x, y, z, w } = found.quaternion;
    if (!(Math.abs(Math.hypot(x, y, z, w) - 1) < 1e-6)) throw new Error("its quaternion is no rotation");
    if (!(Math.abs(found.position.lat) <= 90)) throw new Error("its latitude is none");
    return found;
  });
}

/** A map. Raises WireError for what is none. */
export function mapOf(value: unknown): RemoteMap {
  return checked("map", () => {
    const facts = object(value);
    const { map, name, mapped, version } = facts;
    const dictionaries = facts.dictionaries === undefined ? [] : listOf(value, "dictionaries").map(text);
    return { id: text(map), name: text(name), mapped: mapped === true, version: number(version), dictionaries, facts };
  });
}

/** A contribution. Raises WireError for what is none. */
export function acceptedOf(value: unknown): Accepted {
  return checked("contribution", () => {
    const said = object(value);
    return {
      contribution: text(said.contribution),
      map: text(said.map),
      messageSha256: text(said.message_sha256),
      state: text(said.state),
      reason: text(said.reason),
      job: said.job === undefined || said.job === null ? null : text(said.job),
      receiptsHead: said.receipts_head === undefined ? "" : text(said.receipts_head),
    };
  });
}

/** A job. Raises WireError for what is none. */
export function jobOf(value: unknown): JobStatus {
  return checked("job", () => {
    const said = object(value), progress = object(said.progress);
    const state = text(said.state) as JobStatus["state"];
    if (!["queued", "running", "done", "failed", "cancelled"].includes(state)) throw new Error("its state is unknown");
    return {
      id: text(said.job),
      state,
      step: text(progress.step),
      done: number(progress.done),
      total: number(progress.total),
      result: object(said.result),
    };
  });
}

/** The members of an answer. Raises WireError if it is no object. */
export function factsOf(value: unknown): Readonly<Record<string, unknown>> {
  return checked("object", () => object(value));
}

/** The list under a name of an answer. Raises WireError if there is none. */
export function listOf(value: unknown, name: string): readonly unknown[] {
  return checked(`list of ${name}`, () => {
    const found = object(value)[name];
    if (!Array.isArray(found)) throw new Error("it is missing");
    return found as unknown[];
  });
}

/** What `read` returns. Raises WireError where it throws. */
function checked<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const reason = (error as Error).message;
    throw new WireError(`the server's answer is no ${what} (${reason}); it may be of another version of veil`);
  }
}

function object(value: unknown): Values {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("a part is no object");
  return value as Values;
}

function text(value: unknown): string {
  if (typeof value !== "string") throw new Error("a text is missing");
  return value;
}

function number(value: unknown): number {
  if (typeof value !== "number" || !Number.isFinite(value)) throw new Error("a number is missing");
  return value;
}

function optional(value: unknown): number | null {
  return value === undefined || value === null ? null : number(value);
}

function vector(value: unknown, length: number): readonly number[] {
  if (!Array.isArray(value) || value.length !== length) throw new Error(`a vector has not ${length} numbers`);
  return value.map(number);
}

function matrix(value: unknown, length: number): readonly (readonly number[])[] {
  if (!Array.isArray(value) || value.length !== length) throw new Error(`a matrix has not ${length} rows`);
  return value.map((row) => vector(row, length));
}

function requireRotation(rows: readonly (readonly number[])[]): void {
  const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
  const [x, y, z] = rows as [number[], number[], number[]];
  const cross = [x[1]! * y[2]! - x[2]! * y[1]!, x[2]! * y[0]! - x[0]! * y[2]!, x[0]! * y[1]! - x[1]! * y[0]!];
  const isUnit = [x, y].every((row) => Math.abs(dot(row, row) - 1) < 1e-6) && Math.abs(dot(x, y)) < 1e-6;
  if (!isUnit || !cross.every((value, i) => Math.abs(value - z[i]!) < 1e-6)) throw new Error("the rotation is none");
}
