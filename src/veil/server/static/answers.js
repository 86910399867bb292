/** A server's answer in words. */

/** Whether there is a pose, and the sentence that says so. */
export function verdictOf(answer) {
  if (answer.status === "localized") {
    const agree = answer.evidence === null ? "" : ` ${answer.evidence.inliers.toLocaleString("en")} features agree on where the camera was.`;
    return { found: true, text: `Localized.${agree}` };
  }
  const reason = answer.reason.replace(/[.\s]+$/, "");
  return { found: false, text: `No pose: ${reason}${reason.endsWith("?") ? "" : "."} No answer is made up in its place.` };
}

/** Rows of a table with the numbers behind an answer. */
export function evidenceRows(answer, seconds) {
  const rows = [];
  if (answer.status === "localized") {
    rows.push(["Center of the camera", answer.camera_center.map((value) => value.toFixed(3)).join(", ")]);
    if (answer.covariance !== null) {
      const spread = [3, 4, 5].map((k) => Math.sqrt(Math.max(answer.covariance[k][k], 0)).toExponential(1));
      rows.push(["Deviation of the translation", `${spread.join(", ")} (units of the map)`]);
    }
    if (answer.turn_deviation_deg !== null) {
      rows.push(["Deviation of the turn", `${answer.turn_deviation_deg.toPrecision(2)} degrees`]);
    }
    const { params: [focal], focal_deviation: deviation } = answer.camera;
    rows.push(["Focal length", `${focal.toFixed(1)} px, known to ${(100 * deviation).toPrecision(2)} %`]);
    if (answer.evidence !== null) {
      const { inliers, correspondences, log10_nfa: chance } = answer.evidence;
      rows.push(["Features that agree", `${inliers} of ${correspondences} with a candidate in the map`]);
      if (chance !== null) {
        rows.push(["Poses as good that chance gives", `10^${chance.toFixed(0)} are expected`]);
      }
    }
    if (answer.geopose !== undefined) {
      const { lat, lon, h } = answer.geopose.position;
      rows.push(["On Earth", `${lat.toFixed(6)}, ${lon.toFixed(6)}, ${h.toFixed(1)} m`]);
    }
  } else if (answer.correspondences !== undefined && answer.correspondences !== null) {
    rows.push(["Features with a candidate in the map", String(answer.correspondences)]);
  }
  rows.push(["Features sent", String(answer.features ?? "")]);
  rows.push(["Time until the answer", `${seconds.toFixed(1)} s`]);
  return rows.map(([name, value]) => {
    const row = document.createElement("tr");
    row.append(
      Object.assign(document.createElement("th"), { scope: "row", textContent: name }),
      Object.assign(document.createElement("td"), { textContent: value }),
    );
    return row;
  });
}
