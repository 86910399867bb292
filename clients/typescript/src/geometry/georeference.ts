/** A map's place on Earth, and poses there as GeoPose: OGC GeoPose 1.0, Basic-Quaternion (veil.geometry.georeference, earth). */

import type { GeoPose } from "../answers.js";
import { InputError, WireError } from "../errors.js";
import { eigen } from "./linear.js";
import { type Pose, centerOf, product, times, transposed } from "./pose.js";

// NGA.STND.0036, World Geodetic System 1984, Table 3.1: semi-major axis in meters and flattening.
const SEMI_MAJOR_M = 6378137, FLATTENING = 1 / 298.257223563, ECCENTRICITY2 = FLATTENING * (2 - FLATTENING);
const STEPS = 12;
const RADIANS = Math.PI / 180;

/** East, north and up at an origin (degrees and meters), and the similarity from the map to them in meters. */
export interface Georeference {
  latitudeDeg: number;
  longitudeDeg: number;
  heightM: number;
  scale: number;
  rotation: Float64Array;
  translation: Float64Array;
}

/** The place that JSON values hold. Raises WireError for anything else. */
export function placeOf(value: unknown): Georeference {
  const said = value as { place?: unknown; origin?: Record<string, unknown>; enu_from_map?: Record<string, unknown> };
  const number = (item: unknown): number => {
    if (typeof item !== "number" || !Number.isFinite(item)) throw new WireError("the map's place on Earth is none; get it again");
    return item;
  };
  const { origin = {}, enu_from_map: moved = {} } = said ?? {};
  const rows = Array.isArray(moved.rotation) ? moved.rotation.flat() : [], shift = moved.translation;
  const rotation = Float64Array.from(rows, number), translation = Float64Array.from(Array.isArray(shift) ? shift : [], number);
  const square = rotation.length === 9 ? product(rotation, transposed(rotation)) : rotation;
  const isRotation = square.length === 9 && square.every((item, i) => Math.abs(item - (i % 4 === 0 ? 1 : 0)) < 1e-6);
  const made = {
    latitudeDeg: number(origin.lat),
    longitudeDeg: number(origin.lon),
    heightM: number(origin.h),
    scale: number(moved.scale),
    rotation,
    translation,
  };
  if (said.place !== 1 || !isRotation || translation.length !== 3 || !(made.scale > 0) || !isPlace(made)) {
    throw new WireError("the map's place on Earth is none; get it again");
  }
  return made;
}

function isPlace({ latitudeDeg, longitudeDeg, heightM }: { latitudeDeg: number; longitudeDeg: number; heightM: number }): boolean {
  return Math.abs(latitudeDeg) <= 90 && Math.abs(longitudeDeg) <= 360 && Math.abs(heightM) <= 1e6;
}

/** The place of a GPS fix in units of the map; without a height, that of the map's middle. Raises InputError for no place. */
export function placeInMap(place: Georeference, latitudeDeg: number, longitudeDeg: number, heightM = place.heightM): Float64Array {
  if (!isPlace({ latitudeDeg, longitudeDeg, heightM })) {
    throw new InputError("latitude must be -90 to 90 and longitude -360 to 360 degrees; give a place on Earth");
  }
  const own = ecefOf(place.latitudeDeg, place.longitudeDeg, place.heightM), other = ecefOf(latitudeDeg, longitudeDeg, heightM);
  const local = times(transposed(ecefFromEnu(place.latitudeDeg, place.longitudeDeg)), other.map((value, i) => value - own[i]!));
  const shifted = local.map((value, i) => value - place.translation[i]!);
  return times(transposed(place.rotation), shifted).map((value) => value / place.scale);
}

/** The pose on Earth of a pose in the map; the body's axes are x forward, y left, z up. */
export function geoposeIn(place: Georeference, camFromMap: Pose): GeoPose {
  const turned = times(place.rotation, centerOf(camFromMap));
  const local = turned.map((value, i) => place.scale * value + place.translation[i]!);
  const origin = ecefOf(place.latitudeDeg, place.longitudeDeg, place.heightM);
  const axes = ecefFromEnu(place.latitudeDeg, place.longitudeDeg);
  const ecef = times(axes, local).map((value, i) => value + origin[i]!), position = geodeticOf(ecef);
  const enuFromCam = product(place.rotation, transposed(camFromMap.rotation));
  const here = product(product(transposed(ecefFromEnu(position.lat, position.lon)), axes), enuFromCam);
  // Columns are the body's axes forward, left and up in the camera's frame (x right, y down, z forward).
  const quaternion = quaternionOf(product(here, Float64Array.of(0, -1, 0, 0, 0, -1, 1, 0, 0)));
  return { position, quaternion };
}

/** Earth-centered coordinates of a place, in meters (Hofmann-Wellenhof et al. 2001, Eq. 10.1). */
function ecefOf(latitudeDeg: number, longitudeDeg: number, heightM: number): Float64Array {
  const latitude = RADIANS * latitudeDeg, longitude = RADIANS * longitudeDeg;
  const normal = SEMI_MAJOR_M / Math.sqrt(1 - ECCENTRICITY2 * Math.sin(latitude) ** 2);
  const out = (normal + heightM) * Math.cos(latitude);
  return Float64Array.of(
    out * Math.cos(longitude),
    out * Math.sin(longitude),
    ((1 - ECCENTRICITY2) * normal + heightM) * Math.sin(latitude),
  );
}

/** Latitude, longitude and height of an earth-centered point (ibid., Eq. 10.4 to 10.7). */
function geodeticOf(point: Float64Array): GeoPose["position"] {
  const [x, y, z] = point as unknown as [number, number, number], across = Math.hypot(x, y);
  const normalAt = (angle: number): number => SEMI_MAJOR_M / Math.sqrt(1 - ECCENTRICITY2 * Math.sin(angle) ** 2);
  let latitude = Math.atan2(z, across * (1 - ECCENTRICITY2));
  for (let step = 0; step < STEPS; step++) {
    latitude = Math.atan2(z + ECCENTRICITY2 * normalAt(latitude) * Math.sin(latitude), across);
  }
  const h = across * Math.cos(latitude) + z * Math.sin(latitude) - SEMI_MAJOR_M ** 2 / normalAt(latitude);
  return { lat: latitude / RADIANS, lon: Math.atan2(y, x) / RADIANS, h };
}

/** Rotation whose columns are east, north and up in earth-centered axes. */
function ecefFromEnu(latitudeDeg: number, longitudeDeg: number): Float64Array {
  const s = Math.sin(RADIANS * latitudeDeg), c = Math.cos(RADIANS * latitudeDeg);
  const sl = Math.sin(RADIANS * longitudeDeg), cl = Math.cos(RADIANS * longitudeDeg);
  return Float64Array.of(-sl, -s * cl, c * cl, cl, -s * sl, c * sl, 0, c, s);
}

/** Unit quaternion of a rotation: the eigenvector of Bar-Itzhack (2000), the first of w, x, y, z that is not 0 positive. */
function quaternionOf(rotation: Float64Array): GeoPose["quaternion"] {
  const at = (row: number, column: number): number => rotation[3 * row + column]!;
  const [a, b, c, d, e] = [at(0, 0), at(0, 1), at(0, 2), at(1, 0), at(1, 1)];
  const [f, g, h, i] = [at(1, 2), at(2, 0), at(2, 1), at(2, 2)];
  const matrix = Float64Array.of(
    ...[a - e - i, d + b, g + c, h - f],
    ...[d + b, e - a - i, h + f, c - g],
    ...[g + c, h + f, i - a - e, d - b],
    ...[h - f, c - g, d - b, a + e + i],
  );
  const { vectors } = eigen(matrix, 4), [x, y, z, w] = [3, 7, 11, 15].map((place) => vectors[place]!) as [number, number, number, number];
  const leading = [w, x, y, z].find((part) => Math.abs(part) > 1e-9)!, sign = leading < 0 ? -1 : 1;
  return { x: sign * x, y: sign * y, z: sign * z, w: sign * w };
}
