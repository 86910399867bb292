/** A client of the GeoPoseProtocol, version 2, with a message in place of the image (docs/reference/geopose.md). */
import { factsOf, geoposeOf } from "./answers.js";
import { base64 } from "./bytes.js";
import { requireMessage } from "./client.js";
import { readOwn } from "./codec.js";
import { Connection, MESSAGE_TYPE, VeilProblem } from "./connection.js";
import { WireError, needed } from "./errors.js";
import { hasLines, hasWords, readHead, textOf } from "./head.js";
import { general } from "./numbers.js";
const OSCP = "application/vnd.oscp+json; version=2.0";
/** The largest float32, with which the protocol's own implementations say that an accuracy is not known. */
const UNKNOWN = 3.4028234e38;
/** A client that asks a server for poses on Earth. */
export class GeoPoseClient {
    #connection;
    /** Raises InputError for an address or a token that cannot be one. */
    constructor(options) {
        this.#connection = new Connection(options);
    }
    /** Whether the protocol is spoken at the address. */
    async isRunning() {
        const answer = await this.#connection.json({ method: "GET", path: ["geopose"] });
        return factsOf(answer).status === "running";
    }
    /** The pose on Earth of a message's image, on one map or (null) on whichever map shows it. */
    async localize(message, map = null, readings = {}) {
        requireMessage(message);
        const path = map === null ? ["geopose"] : ["v1", "maps", map, "geopose"];
        const value = geoposeRequest(message, readings);
        try {
            const answer = await this.#connection.json({ method: "POST", path, value, accept: OSCP });
            return answerOf(answer, value.id);
        }
        catch (error) {
            if (error instanceof VeilProblem && error.kind === "no-pose") {
                return { status: "no pose", reason: error.problem, remedies: error.remedies };
            }
            throw error;
        }
    }
}
/** The request about a message, which says of it what was done to its features. */
export function geoposeRequest(message, readings = {}) {
    const head = readHead(message), timestamp = Date.now(), { accelerometer, geolocation, focalDeviation } = readings;
    const privacy = { dataRetention: [], dataAcceptableUse: [], dataSanitizationRequested: [], dataSanitizationApplied: [] };
    const seen = (sensorId, values) => [{ timestamp, sensorId, privacy, ...values }];
    const turned = (rotation) => (rotation === undefined ? {} : { rigRotation: rotation });
    const camera = {
        sequenceNumber: 1,
        size: [head.widthPx, head.heightPx],
        ...(focalDeviation === undefined ? {} : { focalDeviation }),
        imageFormat: MESSAGE_TYPE,
        imageBytes: base64(message),
        privacy: { ...privacy, dataSanitizationApplied: sanitization(head) },
    };
    const sensors = [{ id: "camera", type: "camera", ...turned(accelerometer?.cameraFromRig) }];
    const sensorReadings = { cameraReadings: seen("camera", camera) };
    if (accelerometer !== undefined) {
        const { x, y, z, sensorFromRig } = accelerometer;
        sensors.push({ id: "accelerometer", type: "accelerometer", ...turned(sensorFromRig) });
        sensorReadings.accelerometerReadings = seen("accelerometer", { x, y, z });
    }
    if (geolocation !== undefined) {
        // What the protocol asks for beside them is not known here, and nothing of it is used.
        const rest = { altitude: 0, accuracy: UNKNOWN, altitudeAccuracy: UNKNOWN, heading: 0, speed: 0 };
        sensors.push({ id: "geolocation", type: "geolocation" });
        sensorReadings.geolocationReadings = seen("geolocation", { ...geolocation, ...rest });
    }
    return { id: randomId(), timestamp, type: "geopose", sensors, sensorReadings };
}
/** What became of descriptors and of positions, in veil's terms for the protocol. */
export function sanitization(head) {
    const descriptors = hasWords(head)
        ? `veil:words:epsilon=${general(readOwn(head).mechanism.epsilon)}`
        : `veil:subspaces:${textOf(head.own, "profile")}`;
    return [descriptors, hasLines(head) ? "veil:lines" : "veil:positions"];
}
/** An id that says nothing; `crypto.randomUUID` is missing on pages that are not served over TLS. */
function randomId() {
    return base64(needed(globalThis.crypto, "crypto").getRandomValues(new Uint8Array(12)));
}
function answerOf(value, id) {
    const said = factsOf(value), accuracy = factsOf(said.accuracy);
    if (said.id !== id)
        throw new WireError("the server answered another request");
    const known = (item) => (typeof item === "number" && item < UNKNOWN ? item : null);
    return {
        status: "localized",
        geopose: geoposeOf(said.geopose),
        accuracy: { positionM: known(accuracy.position), orientationDeg: known(accuracy.orientation) },
    };
}
