/** The page: the map and its images, seen as the device, the server or an attack has them. Nothing is fetched. */

import { arrayOf } from "./arrays.js";
import { Drawing } from "./drawing.js";
import { Orbit } from "./orbit.js";
import { drawPair, drawPicture, pictureLines } from "./picture.js";
import { cornersOf, ellipsoid, evenly, planesOf, pyramid, rays } from "./sketches.js";
import { minus, norm, plus, projected, scaled, unit } from "./vectors.js";

const NONE = 0xffffffff;
const MODES = ["device", "server", "attack"];
const FRAME_MS = 1000 / 30;
const CHANGE_MS = 350;
const MOST_FITTED = 4000;
const LEAST_DRAWN = 20000;
const NEAR_PX = 12;
const MOST_NAMES = 12;
const MOST_MATCHES = 120;

const part = (id) => document.getElementById(id);
const view = JSON.parse(part("view").textContent);
const [places, keypoints, seen, lines, aligned, known] = ["places", "keypoints", "seen", "lines", "aligned", "known"].map(arrayOf);
const colors = { device: arrayOf("device"), server: null, attack: arrayOf("attack") };
const { low, stride } = view.points;
const state = { mode: "server", image: null, other: null, point: null, attack: 0, shown: view.points.count, changed: 0, from: null };
let drawing = null;
let orbit = null;
let asked = false;
let palette = {};

/** The place of a point. */
const placeOf = (row) => [0, 1, 2].map((k) => low[k] + stride[k] * places[3 * row + k]);

/** Rows of an image's sightings that are of a point, with that point. */
function pointsOf({ first, count }) {
  const rows = [];
  for (let row = first; row < first + count; row += 1) {
    if (seen[row] !== NONE) {
      rows.push(row);
    }
  }
  return rows;
}

/** Of the points that both images see, the row of each in the one and in the other. */
function shared(image, other) {
  const rows = new Map(pointsOf(image).map((row) => [seen[row], row]));
  return pointsOf(other).filter((row) => rows.has(seen[row])).map((row) => [rows.get(seen[row]), row]);
}

/** The images that see points of an image, with the number of these, the most first. */
function partners(image) {
  const own = new Set(pointsOf(image).map((row) => seen[row]));
  const counted = view.images.map((other) => [other, other === image ? 0 : pointsOf(other).filter((row) => own.has(seen[row])).length]);
  return counted.filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]);
}

/** The images that see a point. */
const seers = (point) => view.images.filter((image) => pointsOf(image).some((row) => seen[row] === point));

/** Places in pixels of the rows of a table of fractions of the image. */
const pixels = (table, { size }, rows) => rows.map((row) => [(table[2 * row] * size[0]) / 65535, (table[2 * row + 1] * size[1]) / 65535]);
const range = (first, count) => Array.from({ length: count }, (_, k) => first + k);
const lineOf = (image, row) => lines.subarray(3 * (image.lines + row - image.first), 3 * (image.lines + row - image.first) + 3);

/** Colors of the page as three numbers from 0 to 1. */
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const rgb = (name) => [1, 3, 5].map((k) => parseInt(value(name).slice(k, k + 2), 16) / 255);
  palette = { css: value };
  for (const name of ["page", "ink", "camera", "query", "chosen", "device", "server", "attack", "upright", "shadow"]) {
    palette[name] = rgb(name);
  }
}

function layer(name) {
  return document.querySelector(`[data-layer="${name}"]`).checked;
}

/** Draw again with the next frame of the screen. */
function redraw() {
  if (!asked && drawing !== null) {
    asked = true;
    requestAnimationFrame((now) => {
      asked = false;
      step(now);
    });
  }
}

/** While the eye moves, so many points as are drawn in time; then all. */
const pace = { share: 1, last: 0, took: 0, timer: 0, moving: false, touched: false };

function moved() {
  [pace.moving, pace.touched] = [true, true];
  clearTimeout(pace.timer);
  redraw();
}

/** The eye rests if it does not move again for longer than a frame takes. */
function rest() {
  clearTimeout(pace.timer);
  pace.timer = setTimeout(() => {
    [pace.moving, pace.last] = [false, 0];
    drawing.coarse = false;
    redraw();
  }, Math.max(200, 2.5 * pace.took));
}

function step(now) {
  if (pace.moving && pace.last > 0) {
    pace.took = now - pace.last;
    const least = Math.min(1, LEAST_DRAWN / Math.max(1, view.points.count));
    drawing.coarse ||= pace.took > 1.5 * FRAME_MS && pace.share <= least;
    const factor = Math.min(1.2, Math.max(0.2, FRAME_MS / pace.took));
    pace.share = Math.min(1, Math.max(least, factor > 0.87 && factor < 1.15 ? pace.share : pace.share * factor));
  }
  pace.last = pace.moving ? now : 0;
  paint(now);
  if (pace.moving) {
    rest();
  }
  if (now - state.changed < CHANGE_MS) {
    redraw();
  }
}

/** Whether points without a color of their own are as visible as others: what the server has, and what lines give back. */
function isFull() {
  return state.mode === "server" || (state.mode === "attack" && colors.attack.length === 0 && view.images.some((image) => image.lines !== null));
}

function paint(now) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const { axes, matrix } = orbit;
  const depth = norm(minus(axes.eye, orbit.target));
  const shown = layer("points") ? Math.ceil(view.points.count * (pace.moving ? pace.share : 1)) : 0;
  const blend = still ? 1 : Math.min(1, (now - state.changed) / CHANGE_MS);
  const size = orbit.focalPx * view.points.size * 2 ** Number(part("size").value);
  drawing.frame({
    matrix,
    shown,
    size,
    haze: [depth - 0.2 * orbit.reach, depth + 1.6 * orbit.reach],
    range: orbit.range,
    shadow: palette.shadow,
    ink: palette.ink,
    paper: palette.page,
    mark: palette.chosen,
    tinted: state.mode === "server" ? 1 : 0,
    strength: state.mode === "server" || still ? Number(state.mode !== "server") : blend,
    blend,
    faint: isFull() ? 0 : 0.62,
  });
}

/** Part of an image, [x, y, width, height] in pixels, that a picture of an attack shows: all of it, or its central square. */
function shownBy(picture, { size }) {
  if (picture.width !== picture.height) {
    return [0, 0, ...size];
  }
  const side = Math.min(...size);
  return [(size[0] - side) / 2, (size[1] - side) / 2, side, side];
}

/** The pictures that hang on the pyramids: photographs, or what an attack drew; nothing on the server. */
function hung() {
  const shown = [];
  for (const image of view.images) {
    const isPhotograph = state.mode === "device" && image.photograph !== null;
    if (image.pose === null || !(isPhotograph || (state.mode === "attack" && image.recovered.length > 0))) {
      continue;
    }
    const number = isPhotograph ? image.photograph : (image.recovered[image === state.image ? state.attack : 0]).picture;
    if (pictures[number].complete && pictures[number].width > 0 && layer(image.query ? "queries" : "cameras")) {
      const size = view.pyramid * (image === state.image ? 1.35 : image.query ? 1.3 : 1);
      shown.push({ image: pictures[number], corners: cornersOf(image, size, isPhotograph ? [0, 0, ...image.size] : shownBy(pictures[number], image)) });
    }
  }
  return shown;
}

/** Lay out everything that is drawn beside the points. */
function outline() {
  const strokes = [];
  const planes = [];
  const seeing = state.point === null ? [] : seers(state.point).filter((image) => image.pose !== null);
  for (const image of view.images) {
    if (image.pose !== null && image !== state.image && image !== state.other && !seeing.includes(image) && layer(image.query ? "queries" : "cameras")) {
      strokes.push(...pyramid(image, view.pyramid * (image.query ? 1.3 : 1), image.query ? palette.query : palette.camera, view.images.length > 100 ? 0.5 : 0.75, image.query ? 2 : 1.3));
      if (image.uncertainty !== null) {
        strokes.push(...ellipsoid(image, view.enlarged, palette.query));
      }
    }
  }
  let marked = [];
  if (state.image !== null && state.image.pose !== null) {
    const { image } = state;
    const both = state.other === null ? null : shared(image, state.other);
    const rows = both === null ? pointsOf(image) : both.map(([row]) => row);
    marked = rows.map((row) => seen[row]);
    strokes.push(...pyramid(image, 1.35 * view.pyramid, palette.chosen, 1, 2.6));
    if (image.uncertainty !== null) {
      strokes.push(...ellipsoid(image, view.enlarged, palette.chosen));
    }
    if (layer("links")) {
      link(image, rows, strokes, planes);
    }
    if (both !== null && state.other.pose !== null) {
      strokes.push(...pyramid(state.other, 1.2 * view.pyramid, palette.chosen, 0.9, 2));
      if (layer("links")) {
        link(state.other, both.map(([, row]) => row), strokes, planes);
      }
    }
  }
  if (state.point !== null) {
    marked = [state.point];
    for (const image of seeing) {
      strokes.push(...pyramid(image, 1.15 * view.pyramid, palette.chosen, 0.9, 2));
      if (layer("links")) {
        link(image, pointsOf(image).filter((row) => seen[row] === state.point), strokes, planes);
      }
    }
  }
  drawing.mark(marked);
  drawing.outline(strokes, planes);
  drawing.hang(hung());
  redraw();
}

/** What ties an image to its points: rays, or the planes of the lines that the server has; all others know the places. */
function link(image, rows, strokes, planes) {
  const ends = rows.map((row) => placeOf(seen[row]));
  if (image.lines === null || state.mode !== "server") {
    strokes.push(...rays(image, ends, palette.chosen));
    return;
  }
  const away = ends.length === 0 ? orbit.reach : Math.max(...ends.map((end) => norm(minus(end, image.pose.center))));
  const made = planesOf(image, rows.map((row) => lineOf(image, row)), 1.1 * away, palette.upright);
  strokes.push(...made.strokes);
  planes.push(...made.planes);
}

/** Choose an image, a point, or nothing. */
function choose({ image = null, point = null }) {
  [state.image, state.other, state.point, state.attack] = [image, null, point, 0];
  part("panel").hidden = image === null && point === null;
  document.body.classList.toggle("chosen", !part("panel").hidden);
  part("choose").value = image === null ? "" : String(view.images.indexOf(image));
  const others = image === null ? [] : partners(image);
  part("other-choice").hidden = others.length === 0;
  part("other").replaceChildren(new Option(`${others.length} images …`, ""));
  part("other").append(...others.map(([other, count]) => new Option(`${other.name} (${count})`, String(view.images.indexOf(other)))));
  showPanel();
  if (drawing !== null) {
    outline();
    layOut();
  }
}

/** Show the points that the chosen image and another one both see, or (null) those of the chosen image. */
function compare(other) {
  state.other = other;
  part("other").value = other === null ? "" : String(view.images.indexOf(other));
  showPanel();
  if (drawing !== null) {
    outline();
    layOut();
  }
}

/** Compare with the next of the images that share points, after the last with none. */
function comparedNext() {
  const options = [...part("other").options].map(({ value }) => value);
  const next = options[(options.indexOf(part("other").value) + 1) % options.length];
  compare(next === "" ? null : view.images[Number(next)]);
}

/** Tell the eye what the panels cover, so that the middle of what is free is the middle of what is seen. */
function layOut() {
  const phone = matchMedia("(max-width: 63rem)").matches;
  const box = (id) => part(id).getBoundingClientRect();
  const head = document.querySelector("header").getBoundingClientRect();
  orbit.free = { left: 0, right: 0, top: phone || head.width > innerWidth / 2 ? head.bottom : 0.5 * head.bottom, bottom: phone ? 0 : 60 };
  if (!part("panel").hidden) {
    orbit.free[phone ? "bottom" : "right"] = phone ? innerHeight - box("panel").top : innerWidth - box("panel").left;
  } else if (phone) {
    orbit.free.bottom = 90;
  }
  if (!pace.touched) {
    fit();
  }
  redraw();
}

function fill(list, sentences) {
  list.replaceChildren(...sentences.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
}

function showPanel() {
  const { image, point } = state;
  for (const id of ["figure", "stand", "previous", "next"]) {
    part(id).hidden = image === null;
  }
  part("stand").hidden = image === null || image.pose === null;
  part("attack-choice").hidden = image === null || state.mode !== "attack" || image.recovered.length < 2;
  if (point !== null) {
    const by = seers(point);
    part("name").textContent = `Point ${point + 1}`;
    fill(part("about"), [
      `at ${placeOf(point).map((value, k) => (value + view.points.origin[k]).toPrecision(5)).join(", ")}`,
      by.length === 0 ? "no sighting of it is in this page" : `seen by ${named(by)}`,
      ...(by.some((item) => item.lines !== null) ? ["each image sent a line: the point lies where their planes meet"] : []),
    ]);
  }
  if (image !== null) {
    part("name").textContent = image.name;
    part("name").title = image.name;
    fill(part("about"), image.said);
    part("attacks").replaceChildren(...image.recovered.map(({ title }, k) => new Option(title, String(k), k === 0, k === state.attack)));
    showPicture(image);
  }
}

/** Names of images, of many the first ones. */
function named(images) {
  const names = images.slice(0, MOST_NAMES).map((image) => image.name).join(", ");
  return images.length > MOST_NAMES ? `${names} and ${images.length - MOST_NAMES} more` : names;
}

/** What the present mode has of an image, to be drawn, and a sentence that says what it is. */
function pictured(image) {
  const all = range(image.first, image.count);
  const matched = pointsOf(image);
  const others = all.filter((row) => seen[row] === NONE);
  const { css } = palette;
  const found = { size: image.size, pictures: [], lines: [], dots: [], caption: view.absent.device };
  const recovered = image.recovered[image === state.image ? state.attack : 0];
  const dotted = (rows, color, radius) => found.dots.push({ places: pixels(keypoints, image, rows), color: css(color), radius });
  if (state.mode === "device") {
    const whole = [0, 0, ...image.size];
    if (image.photograph !== null) {
      found.pictures.push({ image: pictures[image.photograph], place: whole });
      found.caption = "The photograph, which stays on the device.";
    }
    if (image.knownCount > 0) {
      found.dots.push({ places: pixels(known, image, range(image.known, image.knownCount)), color: css("device"), radius: 1.7 });
      found.caption = `${image.photograph === null ? "" : "The photograph and "}its keypoints where they truly are: both stay on the device.`;
    }
  } else if (state.mode === "attack" && recovered !== undefined) {
    found.pictures.push({ image: pictures[recovered.picture], place: shownBy(pictures[recovered.picture], image) });
    found.caption = recovered.title;
  } else if (state.mode === "attack" && image.lines !== null && matched.length > 0) {
    dotted(matched, "attack", 1.8);
    found.caption = "No attack is needed for these: each is where a point of the map projects to, and so near the keypoint that its line hid.";
  } else if (state.mode === "attack") {
    found.caption = view.absent.attack;
  } else if (image.sent !== null) {
    found.pictures.push({ image: pictures[image.sent], place: [0, 0, ...image.size] });
    found.caption = "What was sent, as the audit drew it.";
  } else if (image.lines !== null) {
    found.lines = pictureLines(image, all.map((row) => lineOf(image, row)), (k) => css(aligned[image.lines + k] ? "upright" : "quiet"));
    found.caption = "A line through each keypoint, not where on it. Blue: along gravity. Drawn without lens distortion.";
  } else {
    dotted(others, "quiet", 1.3);
    dotted(matched, image.query ? "query" : "server", 1.8);
    found.caption = image.query ? "Positions of keypoints; orange: inliers of the pose." : "Positions of keypoints that see points of the map.";
  }
  return found;
}

/** Draw the chosen image as the present mode has it, alone or joined with another one, and say what it is. */
function showPicture(image) {
  const phone = matchMedia("(max-width: 63rem)").matches;
  const most = part("panel").clientWidth - 28;
  const high = view.gallery ? 0.55 : phone ? 0.24 : 0.4;
  if (state.other !== null) {
    showPair([image, state.other], [most, innerHeight * Math.max(high, phone ? 0.34 : 0.62)]);
    return;
  }
  const found = pictured(image);
  part("caption").textContent = found.caption;
  drawPicture(part("picture"), [most, innerHeight * high], found);
}

/** Draw two images with the points that both see: joined places, or lines of one color where the server has lines alone. */
function showPair(images, box) {
  const all = shared(...images);
  const both = evenly(all, MOST_MATCHES);
  const color = (k) => `hsl(${Math.round((360 * k) / both.length)} 80% 50%)`;
  const isHidden = images.map((image) => image.lines !== null && state.mode === "server");
  const drawn = images.map((image, side) => {
    const lined = isHidden[side] ? pictureLines(image, both.map((pair) => lineOf(image, pair[side])), color) : [];
    return { size: image.size, pictures: pictured(image).pictures, lines: lined, dots: [] };
  });
  const ends = images.map((image, side) => pixels(keypoints, image, both.map((pair) => pair[side])));
  drawn.forEach(({ dots }, side) => {
    if (!isHidden[side]) {
      dots.push(...ends[side].map((place, k) => ({ places: [place], color: color(k), radius: 2.2 })));
    }
  });
  const links = isHidden.some(Boolean) ? [] : both.map((_, k) => ({ from: ends[0][k], to: ends[1][k], color: color(k) }));
  const some = both.length < all.length ? `; ${both.length} of them are drawn` : "";
  const means = isHidden.some(Boolean) ? "Lines of one color hide keypoints of one point. " : "";
  const said = all.length === 1 ? "1 point of the map is" : `${all.length} points of the map are`;
  part("caption").textContent = `${means}${said} seen by both images${some}.`;
  drawPair(part("picture"), box, ...drawn, links);
}

/** Show everything as the device, the server or an attack has it. */
function setMode(mode) {
  state.from = colors[state.mode];
  state.mode = mode;
  state.changed = performance.now();
  for (const button of document.querySelectorAll("#switch button")) {
    const on = button.dataset.mode === mode;
    button.setAttribute("aria-checked", String(on));
    button.tabIndex = on ? 0 : -1;
  }
  const [headline, ...rest] = view.facts[mode];
  part("headline").textContent = headline;
  fill(part("sentences"), rest);
  showPanel();
  showLegend();
  if (drawing !== null) {
    drawing.color(filled(state.from), filled(colors[mode]));
    outline();
    layOut();
  }
}

const filled = (values) => (values === null || values.length === 0 ? null : values);

function showLegend() {
  const entries = [["camera", "cameras"]];
  if (view.images.some((image) => image.query)) {
    const enlarged = view.enlarged === 1 ? "" : `, enlarged ${view.enlarged} times`;
    entries.push(["query", view.images.some(({ uncertainty }) => uncertainty !== null) ? `queries; rings: 95 % of their centers${enlarged}` : "queries"]);
  }
  entries.push(["chosen", "chosen"]);
  part("legend").replaceChildren(...entries.map(([color, text]) => {
    const item = document.createElement("span");
    const swatch = document.createElement("i");
    swatch.style.background = `var(--${color})`;
    item.append(swatch, text);
    return item;
  }));
}

/** What lies at a place of the canvas: an image, a point, or nothing. */
function pick(x, y) {
  const { clientWidth: width, clientHeight: height } = drawing.canvas;
  const { matrix } = orbit;
  const away = (place) => {
    const [a, b, w] = projected(matrix, place);
    return w <= 0 ? [Infinity, w] : [Math.hypot((a / w + 1) * 0.5 * width - x, (1 - b / w) * 0.5 * height - y), w];
  };
  let found = {};
  let best = 1.6 * NEAR_PX;
  for (const image of view.images) {
    if (image.pose !== null && layer(image.query ? "queries" : "cameras")) {
      const middle = plus(image.pose.center, scaled(unit(image.ahead), 0.4 * view.pyramid));
      const [distance] = [Math.min(away(image.pose.center)[0], away(middle)[0])];
      if (distance < best) {
        [found, best] = [{ image }, distance];
      }
    }
  }
  if (found.image !== undefined || !layer("points")) {
    return found;
  }
  best = Infinity;
  for (let row = 0; row < view.points.count; row += 1) {
    const [distance, depth] = away([low[0] + stride[0] * places[3 * row], low[1] + stride[1] * places[3 * row + 1], low[2] + stride[2] * places[3 * row + 2]]);
    const cost = distance + (NEAR_PX * depth) / orbit.distance;
    if (distance < NEAR_PX && cost < best) {
      [found, best] = [{ point: row }, cost];
    }
  }
  return found;
}

function fit() {
  const rows = range(0, Math.min(view.points.count, MOST_FITTED));
  const centers = view.images.filter(({ pose }) => pose !== null).map(({ pose }) => pose.center);
  orbit.fit(rows.length > 0 ? rows.map(placeOf) : centers, centers);
  pace.touched = false;
  redraw();
}

/** Choose the next image, or the previous one. */
function walk(step) {
  const at = view.images.indexOf(state.image);
  const count = view.images.length;
  if (count > 0) {
    choose({ image: view.images[at < 0 ? (step > 0 ? 0 : count - 1) : (at + step + count) % count] });
  }
}

function standAt({ pose, ahead, first, count }) {
  const depths = pointsOf({ first, count }).map((row) => norm(minus(placeOf(seen[row]), pose.center)));
  const away = depths.length === 0 ? 0.3 * orbit.reach : depths.sort((a, b) => a - b)[depths.length >> 1];
  orbit.stand(pose.center, ahead, away);
}

const KEYS = { f: () => drawing && fit(), n: () => walk(1), p: () => walk(-1), m: comparedNext, Escape: () => choose({}), 1: () => setMode("device"), 2: () => setMode("server"), 3: () => setMode("attack") };

function listen() {
  const toggles = [...document.querySelectorAll("#switch button")];
  toggles.forEach((button, at) => {
    button.addEventListener("click", () => setMode(button.dataset.mode));
    button.addEventListener("keydown", (event) => {
      const turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (turn !== undefined) {
        const next = toggles[(at + turn + MODES.length) % MODES.length];
        next.focus();
        next.click();
      }
    });
  });
  part("close").addEventListener("click", () => choose({}));
  part("next").addEventListener("click", () => walk(1));
  part("previous").addEventListener("click", () => walk(-1));
  part("stand").addEventListener("click", () => standAt(state.image));
  part("fit").addEventListener("click", () => fit());
  part("size").addEventListener("input", redraw);
  part("facts").addEventListener("toggle", () => drawing && layOut());
  part("choose").addEventListener("change", () => choose(part("choose").value === "" ? {} : { image: view.images[Number(part("choose").value)] }));
  part("other").addEventListener("change", () => compare(part("other").value === "" ? null : view.images[Number(part("other").value)]));
  part("attacks").addEventListener("change", () => {
    state.attack = Number(part("attacks").value);
    showPicture(state.image);
    if (drawing !== null) {
      outline();
    }
  });
  for (const box of document.querySelectorAll("[data-layer]")) {
    box.addEventListener("change", outline);
  }
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLSelectElement || event.target instanceof HTMLInputElement;
    if (event.key in KEYS && !event.ctrlKey && !event.metaKey && !event.altKey && !(typing && event.key !== "Escape")) {
      KEYS[event.key]();
    }
  });
  addEventListener("resize", () => {
    showPanel();
    if (drawing !== null) {
      layOut();
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readPalette();
    showPanel();
    if (drawing !== null) {
      outline();
    }
  });
}

/** Make the drawing, again where the graphics driver lost it. */
function startDrawing() {
  const canvas = part("scene");
  drawing = new Drawing(canvas, places, low, stride);
  drawing.color(null, filled(colors[state.mode]));
  outline();
}

function start3d() {
  const canvas = part("scene");
  orbit = new Orbit(canvas, view.up, moved, (x, y) => drawing && choose(pick(x, y)));
  [orbit.reach, orbit.turn, orbit.tilt, orbit.back] = [view.reach, view.turn, view.tilt, view.back];
  startDrawing();
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", startDrawing);
  layOut();
}

/** The page's pictures, decoded. */
const pictures = view.pictures.map((source) => Object.assign(new Image(), { src: source }));

function start() {
  readPalette();
  for (const image of view.images) {
    image.ahead = image.pose === null ? [0, 0, 1] : image.pose.rotation.slice(6, 9);
  }
  part("choose").replaceChildren(new Option(view.images.length === 0 ? "no images" : `${view.images.length} images …`, ""));
  part("choose").append(...view.images.map((image, k) => new Option((image.query ? "query " : "") + image.name, String(k))));
  listen();
  setMode("server");
  document.body.classList.toggle("gallery", view.gallery);
  Promise.all(pictures.map((picture) => picture.decode().catch(() => undefined))).then(() => {
    showPanel();
    if (drawing !== null) {
      outline();
    }
  });
  if (view.gallery) {
    choose(view.images.length > 0 ? { image: view.images[0] } : {});
    return;
  }
  try {
    start3d();
  } catch (error) {
    part("trouble").textContent = error.message;
    part("trouble").hidden = false;
    drawing = null;
  }
}

start();

/** For tests and measurements: the present state, and a frame that is drawn at once. */
globalThis.veilView = {
  view,
  state,
  placeOf,
  choose,
  compare,
  shared,
  pixels: (image, rows) => pixels(keypoints, image, rows),
  setMode,
  fit,
  pick,
  get orbit() {
    return orbit;
  },
  turn: (angle) => orbit.move(angle, 0, 1),
  project: (place) => projected(orbit.matrix, place),
  frame() {
    paint(performance.now());
    const pixel = new Uint8Array(4);
    drawing.gl.readPixels(0, 0, 1, 1, drawing.gl.RGBA, drawing.gl.UNSIGNED_BYTE, pixel);
    return pixel;
  },
  renderer() {
    const told = drawing.gl.getExtension("WEBGL_debug_renderer_info");
    return told === null ? "unknown" : drawing.gl.getParameter(told.UNMASKED_RENDERER_WEBGL);
  },
  pace,
};
