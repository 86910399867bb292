/** Pixels of points in the camera frame and back, for many points at a time: COLMAP's models (veil.geometry.camera, lens.ts). */

import { type Camera, focalCount } from "../camera.js";
import { type Lens, distorted, lensOf, newton } from "../lens.js";

const DIRECT = 100; // iterations of Newton's method, as in COLMAP

/** The camera with focal lengths longer by a factor; all else stays. */
export function zoomed(camera: Camera, factor: number): Camera {
  const count = focalCount(camera.model);
  return { ...camera, params: camera.params.map((value, i) => (i < count ? factor * value : value)) };
}

/** Focal length along x in pixels. */
export const focalPx = (camera: Camera): number => camera.params[0]!;

/** Length of the picture's diagonal in pixels. */
export const diagonalPx = (camera: Camera): number => Math.hypot(camera.widthPx, camera.heightPx);

interface Plane {
  focal: [number, number];
  center: [number, number];
  isFisheye: boolean;
  lens: Lens;
  isCurved: boolean;
}

function planeOf(camera: Camera): Plane {
  const count = focalCount(camera.model), { params } = camera, isFisheye = camera.model.includes("FISHEYE");
  const lens = lensOf(camera, count, isFisheye);
  return {
    focal: [params[0]!, params[count - 1]!],
    center: [params[count]!, params[count + 1]!],
    isFisheye,
    lens,
    isCurved: [...lens.above, ...lens.below, ...lens.tangential].some((value) => value !== 0),
  };
}

/** Pixels (x, y pairs) of points in the camera frame (x, y, z triples); NaN for those that are not before the camera. */
export function imgFromCam(camera: Camera, seen: Float64Array): Float64Array {
  const { focal, center, isFisheye, lens, isCurved } = planeOf(camera), out = new Float64Array((2 * seen.length) / 3);
  for (let at = 0, to = 0; at < seen.length; at += 3, to += 2) {
    const z = seen[at + 2]!;
    let x = seen[at]! / z, y = seen[at + 1]! / z;
    if (!(z > 1e-9)) x = y = NaN;
    else if (isFisheye || isCurved) [x, y] = bent(x, y, isFisheye, lens);
    out[to] = focal[0] * x + center[0];
    out[to + 1] = focal[1] * y + center[1];
  }
  return out;
}

function bent(x: number, y: number, isFisheye: boolean, lens: Lens): readonly [number, number] {
  if (isFisheye) {
    const radius = Math.hypot(x, y), scale = radius > 1e-12 ? Math.atan(radius) / radius : 1;
    [x, y] = [scale * x, scale * y];
  }
  return distorted(lens, [x, y]).at;
}

/** Points (x, y pairs) of the undistorted normalized plane that pixels (x, y pairs) show, by Newton's method as in COLMAP. */
export function camFromImg(camera: Camera, pixels: Float64Array): Float64Array {
  const { focal, center, isFisheye, lens, isCurved } = planeOf(camera), out = new Float64Array(pixels.length);
  for (let at = 0; at < pixels.length; at += 2) {
    let point: readonly [number, number] = [(pixels[at]! - center[0]) / focal[0], (pixels[at + 1]! - center[1]) / focal[1]];
    if (isCurved) point = newton(lens, point, point, DIRECT);
    if (isFisheye) {
      const theta = Math.hypot(...point), scale = theta > 1e-12 ? Math.tan(theta) / theta : 1;
      point = theta < Math.PI / 2 ? [scale * point[0], scale * point[1]] : [NaN, NaN];
    }
    out[at] = point[0];
    out[at + 1] = point[1];
  }
  return out;
}
