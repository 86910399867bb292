/**
 * Localization in tiles, step by step. Oracle: the vectors that Python's veil writes of the same inputs
 * (`python -m worlds.typescript_localizer`), within the rounding of different orders of addition.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Sights } from "../dist/geometry/free_calibration.js";
import { geoposeIn, placeInMap } from "../dist/geometry/georeference.js";
import { threePointPoses } from "../dist/geometry/p3p.js";
import { rotationAngleDeg, product, transposed, centerOf } from "../dist/geometry/pose.js";
import { camFromImg, imgFromCam } from "../dist/geometry/projection.js";
import { coin, pointAgreement, poseLog10Nfa } from "../dist/geometry/significance.js";
import { magnification } from "../dist/geometry/views.js";
import { contradictsCalibration, pictured, weigh } from "../dist/poses/evidence.js";
import { contradictedFocal, fitted, settled } from "../dist/poses/joint.js";
import { weakestRival } from "../dist/poses/judge.js";
import { MatchedPoints } from "../dist/poses/matches.js";
import { compressed, publish } from "../dist/tiles/coding.js";
import { localizeInTiles, wantedTiles } from "../dist/tiles/localize.js";
import { decodeManifest } from "../dist/tiles/tile_manifest.js";
import { matched } from "../dist/tiles/matching.js";
import { decodeTile } from "../dist/tiles/tile_format.js";
import { united } from "../dist/tiles/union.js";
import { fromBase64 } from "./vectors.js";

const vectors = JSON.parse(readFileSync(new URL("localizer.json", import.meta.url), "utf8"));
const manifest = decodeManifest(vectors.manifest, fromBase64(vectors.binary)), { coding } = manifest;
const facts = JSON.parse(vectors.manifest);
const records = vectors.records.map(fromBase64);
const tileOf = (index) => decodeTile(records[index].subarray(0, facts.tile_bytes), { index, axes: coding.axes, bits: coding.bits });
const poseOf = ({ rotation, translation }) => ({ rotation: Float64Array.from(rotation), translation: Float64Array.from(translation) });

function near(actual, expected, relative, what, absolute = 1e-12) {
  assert.ok(actual === expected || Math.abs(actual - expected) <= relative * Math.abs(expected) + absolute, `${what}: ${actual}, and Python has ${expected}`);
}

/** Poses that differ by less than some units of the map and some degrees. */
function samePose(actual, expected, units, degrees, what) {
  const other = poseOf(expected), [a, b] = [centerOf(actual), centerOf(other)];
  assert.ok(Math.hypot(...a.map((value, i) => value - b[i])) <= units, `${what}: center ${a}, and Python has ${b}`);
  assert.ok(rotationAngleDeg(product(actual.rotation, transposed(other.rotation))) <= degrees, `${what}: rotation`);
}

/** Covariances by their own deviations. */
function sameCovariance(actual, expected, size, relative, what) {
  for (let at = 0; at < size * size; at++) {
    const [i, j] = [Math.floor(at / size), at % size];
    const scale = Math.sqrt(expected[i * size + i] * expected[j * size + j]);
    assert.ok(Math.abs(actual[at] - expected[at]) <= relative * scale, `${what}: ${actual[at]}, and Python has ${expected[at]}`);
  }
}

function given(name) {
  const query = vectors.queries.find((one) => one.name === name), keypoints = new Float32Array(fromBase64(query.keypoints).buffer);
  const descriptors = fromBase64(query.descriptors), { camera } = query;
  const features = { width: camera.widthPx, height: camera.heightPx, count: keypoints.length / 2, keypoints, descriptors, normalization: "L2" };
  return { query, features, camera, tiles: query.wanted.map(tileOf) };
}

function pairsOf(name) {
  const { query, features, camera, tiles } = given(name), points = united(tiles, coding);
  const [keypointRows, pointRows] = query.matches.map((rows) => Int32Array.from(rows));
  const pairs = { camera, keypoints: features.keypoints, keypointRows, pointRows, points: points.points, maxErrorPx: 8, seed: 0 };
  return { pairs: new MatchedPoints(pairs), points };
}

test("three points have the poses that Python finds, in its order", () => {
  assert.ok(vectors.threePoints.some(({ poses }) => poses.length > 1) && vectors.threePoints.some(({ poses }) => poses.length === 0));
  for (const { rays, points, poses } of vectors.threePoints) {
    const actual = threePointPoses(Float64Array.from(rays), Float64Array.from(points));
    assert.equal(actual.length, poses.length);
    actual.forEach((pose, k) => samePose(pose, poses[k], 1e-6, 1e-5, "a pose of three points"));
  }
});

test("chances, coins and the weakest rival are Python's", () => {
  const { nfa, agreement, coin: coins, rivals } = vectors.chances;
  for (const [inliers, matches, probability, size, poses, expected] of nfa) {
    near(poseLog10Nfa(inliers, matches, probability, { size, poses }), expected ?? Infinity, 1e-10, "an NFA");
  }
  for (const [error, expected] of agreement) near(pointAgreement({ widthPx: 640, heightPx: 480 }, error), expected, 1e-12, "a chance");
  for (const [more, less, expected] of coins) near(coin(more, less), expected, 1e-9, "a coin");
  for (const [inliers, expected] of rivals) assert.equal(weakestRival(inliers), expected);
});

test("every camera model projects and undistorts as COLMAP does", () => {
  assert.equal(vectors.lenses.length, 9);
  for (const { camera, seen, pixels, plane } of vectors.lenses) {
    imgFromCam(camera, Float64Array.from(seen)).forEach((value, at) => near(value, pixels[at], 0, camera.model, 1e-7));
    camFromImg(camera, Float64Array.from(pixels)).forEach((value, at) => near(value, plane[at], 0, camera.model, 1e-7));
  }
});

test("a free calibration is fitted as Python fits it", () => {
  const { points, seen, start, residuals, fitted: expected, misfit } = vectors.calibration;
  const sights = new Sights(Float64Array.from(points), Float64Array.from(seen));
  const camera = { pose: poseOf(start), offsets: new Float64Array(5) };
  sights.residuals(camera).forEach((value, i) => near(value, residuals[i], 1e-10, "a residual"));
  const fit = sights.fitted(camera, Float64Array.of(Math.log(20), 3, 3, 0.7, 1));
  samePose(fit.pose, expected, 1e-5, 1e-4, "the fit");
  fit.offsets.forEach((value, i) => near(value, expected.offsets[i], 0, "an offset", 1e-5));
  near(sights.residuals(fit).reduce((sum, gap) => sum + gap, 0) / sights.count, misfit, 1e-6, "the misfit");
});

test("damaged tiles and manifests are refused", () => {
  const { tile_bytes: size } = facts, good = records[0].subarray(0, size), expected = { index: 0, axes: coding.axes, bits: coding.bits };
  const points = new DataView(good.buffer, good.byteOffset).getUint32(20, true);
  const changes = [[0, 1], [8, 2], [10, 9], [12, 4], [14, 1], [16, 1], [20, 255], [24, 255], [28, 1], [39, 127], [63, 255], [56 + 8 * points, 9]];
  for (const [at, value] of [...changes, [size - 1, 1]]) {
    const damaged = good.slice();
    damaged[at] = value;
    assert.throws(() => decodeTile(damaged, expected), { name: "WireError" }, `byte ${at}`);
  }
  assert.throws(() => decodeTile(good.subarray(0, 200), expected), { name: "WireError" });
  for (const change of [{ axes: 128 }, { bits: 5 }, { tiles: 0 }, { step: -1 }, { words: 63 }, { place: 7 }, { asked: 99 }]) {
    const text = JSON.stringify({ ...facts, ...change });
    assert.throws(() => decodeManifest(text, fromBase64(vectors.binary)), { name: "WireError" }, text);
  }
});

for (const { name } of vectors.queries) {
  test(`${name}: the tiles, matches and answer are Python's`, () => {
    const { query, features, camera, tiles } = given(name), { answer: expected } = query;
    assert.deepEqual(wantedTiles(manifest, features, query.near === null ? undefined : { place: query.near }), query.wanted);
    const points = united(tiles, coding);
    assert.equal(points.count, query.points);
    const { keypointRows, pointRows } = matched(compressed(publish(features.descriptors, 128), coding), points, coding, null);
    assert.deepEqual([[...keypointRows], [...pointRows]], query.matches);
    const answer = localizeInTiles(features, camera, manifest, tiles);
    assert.equal(answer.status, expected.status, answer.reason ?? "there is a pose");
    assert.equal(answer.correspondences, expected.correspondences);
    if (answer.status === "no pose") {
      const withoutNumbers = (text) => text.replace(/-?\d+(\.\d+)?/g, "#");
      assert.equal(withoutNumbers(answer.reason), withoutNumbers(expected.reason));
      return;
    }
    // Searches draw different samples, and a fit ends where its cost changes by less than 1e-7 of it.
    samePose(answer.camFromWorld, expected.camFromWorld, 5e-4, 5e-3, name);
    assert.deepEqual([...answer.keypointRows], expected.keypointRows);
    assert.deepEqual([...answer.pointRows], expected.pointRows);
    near(answer.log10Nfa, expected.log10Nfa, 1e-3, "the evidence");
    near(answer.turnDeviationDeg, expected.turnDeviationDeg, 0.02, "the deviation");
    near(answer.camera.params[0], expected.focal, 1e-4, "the focal length");
    near(answer.camera.focalDeviation, expected.focalDeviation, 0.02, "its deviation");
    sameCovariance(answer.covariance, expected.covariance, 6, 0.03, "the covariance");
    const { position, quaternion } = geoposeIn(manifest.place, answer.camFromWorld), { geopose } = expected;
    for (const axis of ["lat", "lon"]) near(position[axis], geopose.position[axis], 0, axis, 1e-7);
    near(position.h, geopose.position.h, 0, "height", 5e-3);
    for (const axis of ["x", "y", "z", "w"]) near(quaternion[axis], geopose.quaternion[axis], 0, axis, 1e-4);
    const place = placeInMap(manifest.place, position.lat, position.lon, position.h);
    centerOf(answer.camFromWorld).forEach((value, i) => near(place[i], value, 0, "back on the map", 1e-6));
  });
}

for (const step of vectors.steps) {
  test(`${step.name}: fits and evidence are Python's, step by step`, () => {
    const { pairs, points } = pairsOf(step.name), start = { pose: poseOf(step.start), camera: pairs.camera, fit: null, alone: null };
    const first = fitted(pairs, start), best = settled(pairs, start);
    for (const [actual, expected] of [[first, step.fitted], [best, step.settled]]) {
      samePose(actual.pose, expected, 2e-5, 2e-4, "the fit");
      near(actual.camera.params[0], expected.focal, 1e-5, "the focal length");
      near(actual.fit.noise, expected.noise, 1e-3, "the noise");
      sameCovariance(actual.fit.covariance, expected.covariance, 7, 0.01, "the covariance");
    }
    const seen = weigh(pairs, best, points.views), unchecked = weigh(pairs, best, null);
    assert.deepEqual([...seen.rows], step.rows);
    near(seen.log10Nfa, step.log10Nfa, 1e-6, "the evidence");
    near(unchecked.log10Nfa, step.uncheckedLog10Nfa, 1e-6, "the evidence without views");
    const pointRows = unchecked.rows.map((row) => pairs.pointRows[row]);
    near(magnification(points.views, best.camera, best.pose, points.points, pointRows), step.magnification, 1e-5, "the size");
    assert.equal(contradictsCalibration(pairs, best, unchecked.rows), step.contradictsCalibration);
    assert.equal(pictured(pairs, best, unchecked, points.views), step.pictured);
    assert.equal(contradictedFocal(pairs, best) !== null, step.contradictsFocal);
  });
}

test("the time budget ends the search with a reason, and never with a pose that was not judged", () => {
  const { features, camera, tiles } = given("as taken");
  const answer = localizeInTiles(features, camera, manifest, tiles, { maxSeconds: 1e-9 });
  assert.equal(answer.status, "no pose");
  assert.match(answer.reason, /time/);
  assert.throws(() => localizeInTiles(features, camera, manifest, tiles, { maxSeconds: 0 }), { name: "InputError" });
  assert.throws(() => localizeInTiles(features, camera, manifest, tiles, { maxLog10Nfa: 1 }), { name: "InputError" });
  assert.throws(() => localizeInTiles({ ...features, normalization: "L1_ROOT" }, camera, manifest, tiles), { name: "InputError" });
  assert.equal(localizeInTiles(features, camera, manifest, []).status, "no pose");
  assert.ok(localizeInTiles(features, camera, manifest, tiles, { maxRatio: 0.8 }).correspondences < 154);
});
