/** What a worker does for one map: it reads the manifest, looks which tiles a photograph is of, and localizes it in them. */

import type { Camera } from "../camera.js";
import type { Features } from "../features.js";
import type { LocalizeOptions } from "../poses/options.js";
import { type GrayImage, type SiftOptions, extractSift } from "../sift.js";
import { type TilePose, poseOf } from "./answer.js";
import { type Near, localizeInTiles, queryOf, wantedTiles } from "./localize.js";
import { decodeTile } from "./tile_format.js";
import { type Manifest, decodeManifest } from "./tile_manifest.js";

/** A photograph by its features, or by its gray pixels from which SIFT is extracted, and its camera. */
export interface Photograph {
  camera: Camera;
  features?: Features;
  image?: GrayImage;
  /** Of the extraction; the normalization is the map's. */
  sift?: Omit<SiftOptions, "normalization">;
}

/** What is asked of a worker, one job after the other. */
export type Job =
  | { kind: "open"; text: string; binary: Uint8Array }
  | { kind: "look"; photograph: Photograph; near?: Near }
  | { kind: "localize"; tiles: readonly (readonly [number, Uint8Array])[]; options: LocalizeOptions };

/** What a job gives. */
export type Result =
  | { kind: "opened" }
  | { kind: "looked"; wanted: number[]; features: number }
  | { kind: "localized"; pose: TilePose; unread: readonly (readonly [number, string])[] };

/** The jobs of one map; the features of a photograph stay here between "look" and "localize". */
export class Jobs {
  #manifest: Manifest | null = null;
  #features: Features | null = null;
  #camera: Camera | null = null;
  #query: Float32Array = new Float32Array();

  /** Do a job. Raises InputError and WireError as its steps do. */
  done(job: Job): Result {
    if (job.kind === "open") {
      this.#manifest = decodeManifest(job.text, job.binary);
      return { kind: "opened" };
    }
    const manifest = this.#manifest!;
    if (job.kind === "look") {
      const { photograph, near } = job, { normalization } = manifest.coding;
      this.#features = photograph.features ?? extractSift(photograph.image!, { ...photograph.sift, normalization });
      this.#camera = photograph.camera;
      this.#query = queryOf(manifest, this.#features);
      return { kind: "looked", wanted: wantedTiles(manifest, this.#features, near, this.#query), features: this.#features.count };
    }
    const { axes, bits } = manifest.coding, unread: [number, string][] = [];
    const tiles = job.tiles.flatMap(([index, bytes]) => {
      try {
        return [decodeTile(bytes, { index, axes, bits })];
      } catch (error) {
        unread.push([index, (error as Error).message]);
        return [];
      }
    });
    const answer = localizeInTiles(this.#features!, this.#camera!, manifest, tiles, job.options, this.#query);
    return { kind: "localized", pose: poseOf(answer, manifest.place), unread };
  }
}
