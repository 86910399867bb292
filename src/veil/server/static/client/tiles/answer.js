/** The answer to a photograph that was localized on the device, as users read it. */
import { geoposeIn } from "../geometry/georeference.js";
import { centerCovariance, centerOf } from "../geometry/pose.js";
/** An answer of the judge as users read it; `place` says where on Earth the map is, or is null. */
export function poseOf(answer, place) {
    const { inliers, correspondences, log10Nfa } = answer, evidence = { inliers, correspondences, log10Nfa };
    if (answer.status === "no pose")
        return { status: "no pose", reason: answer.reason, evidence };
    const { camFromWorld: pose, covariance } = answer, spread = centerCovariance(pose, covariance);
    return {
        status: "localized",
        camFromWorld: { rotation: rowsOf(pose.rotation, 3), translation: Array.from(pose.translation) },
        cameraCenter: Array.from(centerOf(pose)),
        centerDeviation: Math.sqrt(spread[0] + spread[4] + spread[8]),
        camera: answer.camera,
        covariance: rowsOf(covariance, 6),
        turnDeviationDeg: answer.turnDeviationDeg,
        evidence,
        keypointRows: answer.keypointRows,
        pointRows: answer.pointRows,
        geopose: place === null ? null : geoposeIn(place, pose),
    };
}
function rowsOf(values, size) {
    return Array.from({ length: size }, (_, row) => Array.from(values.subarray(row * size, (row + 1) * size)));
}
