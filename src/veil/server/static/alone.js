/** A photograph localized on this device in private tiles of the map, and every request that was sent for it. */

import { grayOf } from "./client/picture.js";
import { MapTiles } from "./client/tiles/access.js";
import { BrowserTileCache, MemoryTileCache } from "./client/tiles/cache.js";
import { hexOf } from "./message_parts.js";

const KEPT = "veil tiles";
const MOST_FEATURES = 1536;
const MOST_SECONDS = 60;
const opened = new Map();
/** Requests since the last photograph was asked for: method, path, body, and bytes that came back. */
let requests = [];

/** The name by which a map's tiles are asked for. */
const nameOf = (map) => map.replace(/[^A-Za-z0-9._-]+/g, "-");

/** The tiles that the server has of a map, by its name; null if there are none. */
export async function tilesOf(map) {
  const { tiles } = await (await fetch("/v1/tiles", { credentials: "omit" })).json();
  const found = tiles.find(({ name }) => name === nameOf(map));
  return found === undefined ? null : { name: found.name, map };
}

/** The tiles that were used last, which this browser keeps; null if there are none. */
export function keptTiles() {
  return JSON.parse(localStorage.getItem(KEPT) ?? "null");
}

/** Keep the page and the tiles in this browser, for times without a network. */
export async function keepPage() {
  if ("serviceWorker" in navigator) {
    await navigator.serviceWorker.register("/static/service_worker.js", { scope: "/" });
  }
}

/** A way to send requests that notes what was sent, and how much came back. */
async function noted(target, options = {}) {
  const response = await fetch(target, options);
  const path = new URL(target).pathname;
  const request = { method: options.method ?? "GET", path, body: options.body ?? new Uint8Array(), received: 0 };
  requests.push(request);
  request.received = (await response.clone().arrayBuffer()).byteLength;
  return response;
}

/** The answer to a photograph in the tiles of a map, as `answers.js` shows one, and the requests that were sent for it. */
export async function find({ name, map }, { rgba, width, height, camera }) {
  requests = [];
  const cache = "caches" in globalThis ? new BrowserTileCache() : new MemoryTileCache();
  if (!opened.has(name)) {
    const tiles = MapTiles.open([`${location.origin}/v1/tiles/${name}`], { cache, fetch: noted });
    opened.set(name, tiles);
    tiles.catch(() => opened.delete(name));
  }
  const tiles = await opened.get(name);
  const image = { width, height, pixels: grayOf(rgba) };
  const { pose, refused } = await tiles.localize({ camera, image, sift: { maxFeatures: MOST_FEATURES } }, { options: { maxSeconds: MOST_SECONDS } });
  localStorage.setItem(KEPT, JSON.stringify({ name, map }));
  return { answer: answerOf(pose), refused: [...refused.values()], guarantee: tiles.guarantee, requests };
}

function answerOf(pose) {
  const { inliers, correspondences, log10Nfa } = pose.evidence;
  if (pose.status === "no pose") {
    return { status: "no pose", reason: pose.reason, correspondences, features: "none" };
  }
  const { params, focalDeviation } = pose.camera;
  return {
    status: "localized",
    cam_from_world: pose.camFromWorld,
    camera_center: pose.cameraCenter,
    covariance: pose.covariance,
    turn_deviation_deg: pose.turnDeviationDeg,
    camera: { params, focal_deviation: focalDeviation },
    evidence: { inliers, correspondences, log10_nfa: log10Nfa },
    ...(pose.geopose === null ? {} : { geopose: pose.geopose }),
    features: "none",
  };
}

/** Show requests: rows of a table, and all that the page sent, byte by byte. */
export function showRequests(table, pre) {
  const rows = requests.map(({ method, path, body, received }) => {
    const line = document.createElement("tr");
    const name = path.replace(/^.*\/[0-9a-f]{64}\//, "").replace(/^\/v1\/tiles\/[^/]*\//, "");
    for (const [text, style] of [[`${method} ${name}`, "path"], [body.length.toLocaleString("en"), "count"], [received.toLocaleString("en"), "count"]]) {
      line.append(Object.assign(document.createElement("td"), { className: style, textContent: text }));
    }
    return line;
  });
  table.replaceChildren(...rows);
  const texts = requests.map(({ method, path, body }) => `${method} ${path}\n${body.length > 0 ? `${hexOf(body)}\n` : ""}`);
  pre.textContent = texts.join("") || "Nothing was sent: this page has the tiles already.";
}
