/** What is drawn of a chosen image: its pyramid, its uncertainty, rays to its points, and the planes behind its lines. */

import { norm, plus, scaled } from "./vectors.js";

const MOST_RAYS = 240;
const MOST_PLANES = 60;
const RING = 48;
const SIGMAS = 2.8; // of an ellipsoid that holds a normal distribution of three dimensions with 95 %

/** A direction of the camera's frame in the world. */
export function worldDirection({ rotation: r }, [x, y, z]) {
  return [r[0] * x + r[3] * y + r[6] * z, r[1] * x + r[4] * y + r[7] * z, r[2] * x + r[5] * y + r[8] * z];
}

/** The direction in the world of a place of the image plane, in pixels, without distortion. */
export function rayOf(image, [u, v]) {
  return worldDirection(image.pose, [(u - image.middle[0]) / image.focal[0], (v - image.middle[1]) / image.focal[1], 1]);
}

/** Both ends in pixels of the part of a line a x + b y + c = 0 (normalized plane) that lies in the image; null if there is none. */
export function lineInImage({ size, focal, middle }, [a, b, c]) {
  const [p, q] = [a / focal[0], b / focal[1]];
  const r = c - p * middle[0] - q * middle[1];
  const ends = [];
  for (const x of [0, size[0]]) {
    ends.push([x, -(p * x + r) / q]);
  }
  for (const y of [0, size[1]]) {
    ends.push([-(q * y + r) / p, y]);
  }
  const inside = ends.filter(([x, y]) => x >= -1e-6 && y >= -1e-6 && x <= size[0] + 1e-6 && y <= size[1] + 1e-6);
  if (inside.length < 2) {
    return null;
  }
  const far = inside.reduce((best, end) => (norm([end[0] - inside[0][0], end[1] - inside[0][1], 0]) > norm([best[0] - inside[0][0], best[1] - inside[0][1], 0]) ? end : best));
  return [inside[0], far];
}

/** Corners in the world of a part of an image, [x, y, width, height] in pixels, on the base of its pyramid of this `size`. */
export function cornersOf(image, size, [x, y, w, h]) {
  const depth = (0.5 * size * (image.focal[0] + image.focal[1])) / Math.max(...image.size);
  return [[x, y], [x + w, y], [x + w, y + h], [x, y + h]].map((at) => plus(image.pose.center, scaled(rayOf(image, at), depth)));
}

/** Strokes of a camera as a pyramid from its center to its image, whose longer side is `size` long. */
export function pyramid(image, size, color, alpha, width) {
  const { center } = image.pose;
  const [w, h] = image.size;
  const corners = cornersOf(image, size, [0, 0, w, h]);
  const top = plus(scaled(plus(corners[0], corners[1]), 0.5), scaled(worldDirection(image.pose, [0, -1, 0]), 0.14 * size));
  const pairs = [[center, corners[0]], [center, corners[1]], [center, corners[2]], [center, corners[3]]];
  corners.forEach((corner, k) => pairs.push([corner, corners[(k + 1) % 4]]));
  pairs.push([corners[0], top], [top, corners[1]]);
  return pairs.map(([start, end]) => ({ start, end, color, alpha, width }));
}

/** Strokes of the ellipsoid that holds a camera's center with 95 %, `enlarged` so many times: one ring for each two axes. */
export function ellipsoid({ pose, uncertainty }, enlarged, color) {
  const axes = [0, 1, 2].map((k) => scaled(uncertainty.slice(3 * k, 3 * k + 3), SIGMAS * enlarged));
  const strokes = [];
  for (const [first, second] of [[0, 1], [1, 2], [2, 0]]) {
    const at = (step) => {
      const angle = (2 * Math.PI * step) / RING;
      return plus(pose.center, plus(scaled(axes[first], Math.cos(angle)), scaled(axes[second], Math.sin(angle))));
    };
    for (let step = 0; step < RING; step += 1) {
      strokes.push({ start: at(step), end: at(step + 1), color, alpha: 0.9, width: 1.4 });
    }
  }
  return strokes;
}

/** At most `most` of these, evenly. */
export function evenly(items, most) {
  const step = Math.max(1, items.length / most);
  return Array.from({ length: Math.min(items.length, most) }, (_, k) => items[Math.floor(k * step)]);
}

/** Strokes from a camera to places that it sees. */
export function rays(image, places, color) {
  const shown = evenly(places, MOST_RAYS);
  const alpha = Math.max(0.12, Math.min(0.6, 20 / Math.max(1, shown.length)));
  return shown.map((end) => ({ start: image.pose.center, end, color, alpha, width: 1.1 }));
}

/** Planes through a camera and its `lines`, as far as `away`: what it sent of each keypoint says no more than that. */
export function planesOf(image, lines, away, color) {
  const ends = lines.map((line) => lineInImage(image, line)).filter((pair) => pair !== null);
  const shown = evenly(ends, MOST_PLANES);
  const alpha = Math.max(0.02, Math.min(0.16, 1 / Math.max(1, shown.length)));
  const { center } = image.pose;
  const corners = shown.map((pair) => pair.map((end) => {
    const ray = rayOf(image, end);
    return plus(center, scaled(ray, away / norm(ray)));
  }));
  return {
    planes: corners.map(([start, end]) => ({ corners: [center, start, end], color, alpha })),
    strokes: corners.map(([start, end]) => ({ start, end, color, alpha: 0.5, width: 1 })),
  };
}
