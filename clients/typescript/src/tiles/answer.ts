/** The answer to a photograph that was localized on the device, as users read it. */

import type { GeoPose, Rigid } from "../answers.js";
import type { Camera } from "../camera.js";
import { type Georeference, geoposeIn } from "../geometry/georeference.js";
import { centerCovariance, centerOf } from "../geometry/pose.js";
import type { Posed, Refused } from "../poses/judge.js";

/** Numbers of inliers and of pairs that the pose was searched among, and log10 of the number of chance poses as good. */
export interface Evidence {
  inliers: number;
  correspondences: number;
  log10Nfa: number;
}

/** A pose in a map and what is known of it, or the reason why there is none; both are known to this device alone. */
export type TilePose =
  | {
      status: "localized";
      /** From the map's coordinates to the camera (x right, y down, z forward). */
      camFromWorld: Rigid;
      cameraCenter: readonly number[];
      /** Standard deviation of the center in units of the map. */
      centerDeviation: number;
      /** Intrinsics with the focal length that was solved for with the pose, and its relative deviation. */
      camera: Camera;
      /** 6 x 6, rotation (radians) first, in the camera frame. */
      covariance: readonly (readonly number[])[];
      turnDeviationDeg: number;
      evidence: Evidence;
      /** Keypoint and point of each inlier. */
      keypointRows: Int32Array;
      pointRows: Int32Array;
      /** The pose on Earth; null where nobody said where the map is. */
      geopose: GeoPose | null;
    }
  | { status: "no pose"; reason: string; evidence: Evidence };

/** What came of one photograph. */
export interface TileAnswer {
  pose: TilePose;
  /** The tiles that it was looked for in, the most promising first. */
  wanted: readonly number[];
  /** Why a wanted tile was not used. Tell the user, and never the server: it would learn that the tile was wanted. */
  refused: ReadonlyMap<number, string>;
  /** Number of records that were asked for; 0 offline. */
  asked: number;
}

/** An answer of the judge as users read it; `place` says where on Earth the map is, or is null. */
export function poseOf(answer: Posed | Refused, place: Georeference | null): TilePose {
  const { inliers, correspondences, log10Nfa } = answer, evidence = { inliers, correspondences, log10Nfa };
  if (answer.status === "no pose") return { status: "no pose", reason: answer.reason, evidence };
  const { camFromWorld: pose, covariance } = answer, spread = centerCovariance(pose, covariance);
  return {
    status: "localized",
    camFromWorld: { rotation: rowsOf(pose.rotation, 3), translation: Array.from(pose.translation) },
    cameraCenter: Array.from(centerOf(pose)),
    centerDeviation: Math.sqrt(spread[0]! + spread[4]! + spread[8]!),
    camera: answer.camera,
    covariance: rowsOf(covariance, 6),
    turnDeviationDeg: answer.turnDeviationDeg,
    evidence,
    keypointRows: answer.keypointRows,
    pointRows: answer.pointRows,
    geopose: place === null ? null : geoposeIn(place, pose),
  };
}

function rowsOf(values: Float64Array, size: number): number[][] {
  return Array.from({ length: size }, (_, row) => Array.from(values.subarray(row * size, (row + 1) * size)));
}
