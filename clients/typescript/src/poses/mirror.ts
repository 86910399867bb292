/** Queries turned over as in a mirror, and the refusal of those that fit the map better so (veil.places.poses.mirror). */

import type { Camera } from "../camera.js";
import { COIN } from "./evidence.js";
import { type Posed, type Refused, refusal } from "./judge.js";

// A pose that explains more than this share of the matches is not asked, as mirrored photographs have a fifth at most.
const EXPLAINED = 0.5;

/** Keypoints in pixels of a picture after it was turned over left to right. */
export function mirroredKeypoints({ widthPx }: Camera, keypoints: Float32Array): Float32Array {
  return keypoints.map((value, at) => (at % 2 === 0 ? widthPx - value : value));
}

/** Whether a pose leaves so many matches unexplained that it may be that of a mirrored photograph. */
export function isDoubtful(answer: Posed | Refused): boolean {
  return answer.inliers <= EXPLAINED * answer.correspondences;
}

/** The answer to a query, or a refusal if the mirrored query has evidence as good; it is asked for poses alone. */
export function unlessMirrored(answer: Posed | Refused, mirroredLog10Nfa: () => number): Posed | Refused {
  if (answer.status === "no pose") return answer;
  const other = mirroredLog10Nfa();
  if (other > answer.log10Nfa - Math.log10(COIN)) return answer;
  return refusal(
    "turned over as in a mirror, the query fits the map as well or better (log10 of expected chance poses " +
      `${other.toFixed(1)}, as it was sent ${answer.log10Nfa.toFixed(1)}); is the photograph mirrored? Turn it over, and ask again`,
    answer.correspondences,
    answer.inliers,
    answer.log10Nfa,
  );
}
