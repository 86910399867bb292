/** What a server answers, as records; whatever it sends is checked. */
import { requireCamera } from "./camera.js";
import { WireError, remediesOf } from "./errors.js";
/** The answer to a query. Raises WireError for what is none. */
export function localizationOf(value) {
    return checked("pose", () => {
        const said = object(value);
        if (said.status === "no pose") {
            return { status: "no pose", reason: text(said.reason), remedies: remediesOf(said.remedy), map: text(said.map) };
        }
        if (said.status !== "localized")
            throw new Error("its status is unknown");
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
function cameraOf(value) {
    const said = object(value);
    if (!Array.isArray(said.params))
        throw new Error("the camera has no parameters");
    const camera = {
        model: text(said.model),
        widthPx: number(said.width_px),
        heightPx: number(said.height_px),
        params: said.params.map(number),
        focalDeviation: number(said.focal_deviation),
    };
    requireCamera(camera);
    return camera;
}
/** A pose on Earth. Raises WireError for what is none. */
export function geoposeOf(value) {
    return checked("GeoPose", () => {
        const { position, quaternion } = object(value);
        const [place, turn] = [object(position), object(quaternion)];
        const found = {
            position: { lat: number(place.lat), lon: number(place.lon), h: number(place.h) },
            quaternion: { x: number(turn.x), y: number(turn.y), z: number(turn.z), w: number(turn.w) },
        };
        const { x, y, z, w } = found.quaternion;
        if (!(Math.abs(Math.hypot(x, y, z, w) - 1) < 1e-6))
            throw new Error("its quaternion is no rotation");
        if (!(Math.abs(found.position.lat) <= 90))
            throw new Error("its latitude is none");
        return found;
    });
}
/** A map. Raises WireError for what is none. */
export function mapOf(value) {
    return checked("map", () => {
        const facts = object(value);
        const { map, name, mapped, version } = facts;
        const dictionaries = facts.dictionaries === undefined ? [] : listOf(value, "dictionaries").map(text);
        return { id: text(map), name: text(name), mapped: mapped === true, version: number(version), dictionaries, facts };
    });
}
/** A contribution. Raises WireError for what is none. */
export function acceptedOf(value) {
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
export function jobOf(value) {
    return checked("job", () => {
        const said = object(value), progress = object(said.progress);
        const state = text(said.state);
        if (!["queued", "running", "done", "failed", "cancelled"].includes(state))
            throw new Error("its state is unknown");
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
export function factsOf(value) {
    return checked("object", () => object(value));
}
/** The list under a name of an answer. Raises WireError if there is none. */
export function listOf(value, name) {
    return checked(`list of ${name}`, () => {
        const found = object(value)[name];
        if (!Array.isArray(found))
            throw new Error("it is missing");
        return found;
    });
}
/** What `read` returns. Raises WireError where it throws. */
function checked(what, read) {
    try {
        return read();
    }
    catch (error) {
        const reason = error.message;
        throw new WireError(`the server's answer is no ${what} (${reason}); it may be of another version of veil`);
    }
}
function object(value) {
    if (typeof value !== "object" || value === null || Array.isArray(value))
        throw new Error("a part is no object");
    return value;
}
function text(value) {
    if (typeof value !== "string")
        throw new Error("a text is missing");
    return value;
}
function number(value) {
    if (typeof value !== "number" || !Number.isFinite(value))
        throw new Error("a number is missing");
    return value;
}
function optional(value) {
    return value === undefined || value === null ? null : number(value);
}
function vector(value, length) {
    if (!Array.isArray(value) || value.length !== length)
        throw new Error(`a vector has not ${length} numbers`);
    return value.map(number);
}
function matrix(value, length) {
    if (!Array.isArray(value) || value.length !== length)
        throw new Error(`a matrix has not ${length} rows`);
    return value.map((row) => vector(row, length));
}
function requireRotation(rows) {
    const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
    const [x, y, z] = rows;
    const cross = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]];
    const isUnit = [x, y].every((row) => Math.abs(dot(row, row) - 1) < 1e-6) && Math.abs(dot(x, y)) < 1e-6;
    if (!isUnit || !cross.every((value, i) => Math.abs(value - z[i]) < 1e-6))
        throw new Error("the rotation is none");
}
