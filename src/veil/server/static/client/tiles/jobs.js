/** What a worker does for one map: it reads the manifest, looks which tiles a photograph is of, and localizes it in them. */
import { extractSift } from "../sift.js";
import { poseOf } from "./answer.js";
import { localizeInTiles, queryOf, wantedTiles } from "./localize.js";
import { decodeTile } from "./tile_format.js";
import { decodeManifest } from "./tile_manifest.js";
/** The jobs of one map; the features of a photograph stay here between "look" and "localize". */
export class Jobs {
    #manifest = null;
    #features = null;
    #camera = null;
    #query = new Float32Array();
    /** Do a job. Raises InputError and WireError as its steps do. */
    done(job) {
        if (job.kind === "open") {
            this.#manifest = decodeManifest(job.text, job.binary);
            return { kind: "opened" };
        }
        const manifest = this.#manifest;
        if (job.kind === "look") {
            const { photograph, near } = job, { normalization } = manifest.coding;
            this.#features = photograph.features ?? extractSift(photograph.image, { ...photograph.sift, normalization });
            this.#camera = photograph.camera;
            this.#query = queryOf(manifest, this.#features);
            return { kind: "looked", wanted: wantedTiles(manifest, this.#features, near, this.#query), features: this.#features.count };
        }
        const { axes, bits } = manifest.coding, unread = [];
        const tiles = job.tiles.flatMap(([index, bytes]) => {
            try {
                return [decodeTile(bytes, { index, axes, bits })];
            }
            catch (error) {
                unread.push([index, error.message]);
                return [];
            }
        });
        const answer = localizeInTiles(this.#features, this.#camera, manifest, tiles, job.options, this.#query);
        return { kind: "localized", pose: poseOf(answer, manifest.place), unread };
    }
}
