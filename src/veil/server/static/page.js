/** The demo page: a photograph is read and protected here, its message is shown, sent, and answered. */

import { guessedCamera } from "./client/camera.js";
import { hex } from "./client/bytes.js";
import { composedEpsilon } from "./client/composition.js";
import { SubsetMechanism, asNumber } from "./client/mechanism.js";
import { general, outward, outwardPercent } from "./client/numbers.js";
import { sha256 } from "./client/digests.js";
import { find, keepPage, keptTiles, showRequests, tilesOf } from "./alone.js";
import { evidenceRows, verdictOf } from "./answers.js";
import { startCamera } from "./camera_view.js";
import { showMessage } from "./message_parts.js";
import { drawFound, drawSeen, pixelsOf } from "./pictures.js";
import * as server from "./server.js";
import { Viewer } from "./viewer.js";
import { call } from "./worker.js";

const WORDS_EACH = 2;
const DELTA = 1e-6;
const CALIBRATED = 0.01; // relative deviation of the focal lengths of the example photographs

const part = (id) => document.getElementById(id);
const viewer = new Viewer(part("viewer"));
/** What is chosen now; `run` numbers the choices, so that what comes late is not shown for another one. */
const now = { run: 0, maps: [], views: new Map(), ready: null, tiles: null, dictionary: null, photograph: null, features: null, release: null };

function trouble(place, error) {
  place.textContent = error === null ? "" : error.message;
  place.hidden = error === null;
}

function hideAfter(first) {
  for (const id of ["protect", "message", "answer", ...(first === 0 ? ["alone"] : [])].slice(first)) {
    part(id).hidden = true;
  }
}

function bring(id) {
  part(id).hidden = false;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  part(id).scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
}

/** Run what a button starts, with the button saying so meanwhile, and say what went wrong at `place`. */
async function doing(button, place, said, work) {
  const usual = button.textContent;
  [button.disabled, button.textContent] = [true, said];
  trouble(place, null);
  try {
    await work();
  } catch (error) {
    trouble(place, error);
  } finally {
    [button.disabled, button.textContent] = [false, usual];
  }
}

// Map ------------------------------------------------------------------------------------------------------------------------

async function connect() {
  trouble(part("connection-trouble"), null);
  try {
    const found = (await server.maps()).filter((map) => map.mapped && (map.dictionaries ?? []).length > 0);
    server.keepToken();
    part("token-form").hidden = true;
    if (found.length === 0) {
      throw new Error("The token may use no map that takes queries in words. A demo server makes one.");
    }
    now.maps = found;
    part("map").replaceChildren(...found.map((map) => new Option(map.name, map.map)));
    part("map-choice").hidden = false;
    await chooseMap();
  } catch (error) {
    part("token-form").hidden = error.status !== 401;
    if (error.status === 401) {
      server.dropToken();
    }
    trouble(part("connection-trouble"), error);
    if (error.status === 0 && keptTiles() !== null) {
      useKeptTiles();
    }
  }
}

/** Without the server, the map that was used last serves, as this browser keeps its tiles. */
function useKeptTiles() {
  now.tiles = keptTiles();
  part("map-note").textContent = `The map "${now.tiles.map}" is kept in this browser: photographs are localized here, in what is kept.`;
  part("map-note").hidden = false;
}

function chosenMap() {
  return now.maps.find((map) => map.map === part("map").value);
}

async function chooseMap() {
  const map = chosenMap();
  const [model] = map.models;
  part("map-facts").textContent = `${model.images} photographs, ${model.points.toLocaleString("en")} points`;
  part("map-note").textContent = map.public
    ? "This map is public: it holds raw descriptors of its owner's own photographs. Yours are not treated so."
    : "This map was made from words alone.";
  part("map-note").hidden = false;
  hideAfter(2);
  now.ready = useDictionary(map.dictionaries[0]);
  now.tiles = await tilesOf(map.name);
  if (now.tiles !== null) {
    keepPage().catch(() => {}); // the page works without it, but not without a network
  }
  await now.ready;
  if (!now.views.has(map.map)) {
    now.views.set(map.map, map.public ? await server.view(map.map) : null);
  }
}

/** Have the dictionary of a map loaded, and its hash verified. */
async function useDictionary(digest) {
  if (now.dictionary?.digest === digest) {
    return;
  }
  [now.dictionary, now.release] = [null, null];
  hideAfter(1);
  const dictionary = await call("dictionary", { file: await server.dictionaryFile(digest) });
  if (dictionary.digest !== digest) {
    throw new Error("The server sent another dictionary than the map's; nothing is released with it.");
  }
  now.dictionary = dictionary;
  part("dictionary-size").textContent = dictionary.size.toLocaleString("en");
  showPromise();
}

// Photograph -----------------------------------------------------------------------------------------------------------------

async function offerPhotographs() {
  for (const { name, place, camera } of await server.photographs()) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "photograph" });
    const image = Object.assign(document.createElement("img"), { alt: `${name}, ${place}`, loading: "lazy" });
    const caption = Object.assign(document.createElement("span"), { textContent: `${name.split(".")[0]}, ${place}` });
    button.setAttribute("aria-pressed", "false");
    button.dataset.name = name;
    button.append(image, caption);
    part("photographs").append(button);
    const file = await server.photograph(name);
    image.src = URL.createObjectURL(file);
    button.addEventListener("click", () => choose(file, { name, known: camera, button }));
  }
}

/** Read a photograph, find its keypoints, and show them. */
async function choose(source, { name, known = null, button = null }) {
  now.run += 1;
  const run = now.run;
  for (const one of part("photographs").children) {
    one.setAttribute("aria-pressed", String(one === button));
  }
  trouble(part("choose-trouble"), null);
  hideAfter(0);
  try {
    const photograph = await pixelsOf(source);
    const { rgba, width, height } = photograph;
    part("choose-state").hidden = false;
    const features = await call("extract", { run, rgba, width, height });
    if (run !== now.run) {
      return;
    }
    const camera = known === null ? guessedCamera(width, height) : cameraOf(known);
    Object.assign(now, { photograph: { ...photograph, name, camera }, features, release: null });
    showFound();
    showPromise();
    trouble(part("release-trouble"), null);
    part("release-again").hidden = true;
    const canAsk = now.ready !== null, canFind = now.tiles !== null;
    [part("alone").hidden, part("sent").hidden, part("protect-or").hidden] = [!canFind, true, !canFind];
    if (canAsk || !canFind) {
      bring("protect");
    }
    if (canFind) {
      bring("alone");
    }
  } catch (error) {
    if (run === now.run) {
      trouble(part("choose-trouble"), error);
    }
  } finally {
    part("choose-state").hidden = run === now.run;
  }
}

function cameraOf({ model, width_px: widthPx, height_px: heightPx, params }) {
  return { model, widthPx, heightPx, params, focalDeviation: CALIBRATED };
}

function showFound() {
  const { photograph, features } = now;
  drawFound(part("found"), photograph, features);
  const { focalDeviation } = photograph.camera;
  const focal = focalDeviation === null ? "its focal length is guessed" : `its focal length is known to ${general(100 * focalDeviation)} %`;
  part("found-caption").textContent =
    `${features.count.toLocaleString("en")} keypoints, found in ${features.seconds.toFixed(1)} s on this device. ` +
    `The image has ${photograph.width} x ${photograph.height} px; ${focal}.`;
}

// Protection -----------------------------------------------------------------------------------------------------------------

/** What the chosen epsilon promises, computed for this dictionary and this number of features. */
function showPromise() {
  const epsilon = Number(part("epsilon").value);
  part("epsilon-shown").textContent = String(epsilon);
  if (now.dictionary === null || now.features === null) {
    return;
  }
  const mechanism = new SubsetMechanism({ dictionarySize: now.dictionary.size, epsilon, m: WORDS_EACH });
  const features = now.features.count;
  const image = composedEpsilon([{ mechanism, features }], DELTA);
  const sentences = [
    `The nearest word is among the two with probability ${outwardPercent(asNumber(mechanism.truth))} %.`,
    `A word that is sent is the nearest one with probability ${outwardPercent(mechanism.posterior)} %, if all were equally likely before.`,
    `All ${features.toLocaleString("en")} features together: epsilon ${outward(image)} for the image (delta 1e-6).`,
  ];
  part("promise").replaceChildren(
    ...sentences.map((textContent) => Object.assign(document.createElement("li"), { textContent })),
  );
}

async function release(allowSecond) {
  if (now.ready === null) {
    throw new Error("Connect to a map first: it says which words it understands.");
  }
  const { run, ready } = now;
  await ready;
  const epsilon = Number(part("epsilon").value);
  const { camera, name } = now.photograph;
  let made;
  try {
    made = await call("release", { run, epsilon, camera, name, allowSecond });
  } catch (error) {
    part("release-again").hidden = error.name !== "ReleaseRefused";
    throw error;
  }
  if (run !== now.run || ready !== now.ready) {
    return;
  }
  part("release-again").hidden = true;
  now.release = made;
  drawSeen(part("seen"), now.photograph, made.positions);
  const bytes = made.message.length.toLocaleString("en");
  part("message-size").textContent = `${bytes} bytes`;
  const again = made.shownBefore.toLocaleString("en");
  const repeats = made.shownBefore > 0 ? ` ${again} features left before, and have the words that they had then.` : "";
  part("message-facts").textContent = `with epsilon ${epsilon} of each feature. This is the whole request's body.${repeats}`;
  showMessage(made.message, part("parts"), part("bytes"));
  part("message-digest").textContent = hex(sha256(made.message));
  part("send").textContent = `Send these ${bytes} bytes`;
  trouble(part("send-trouble"), null);
  hideAfter(2);
  bring("message");
}

// Found here -----------------------------------------------------------------------------------------------------------------

async function findAlone() {
  const { run, tiles, photograph } = now;
  const begun = performance.now();
  const found = await find(tiles, photograph);
  if (run !== now.run) {
    return;
  }
  part("guarantee").textContent = [found.guarantee, ...found.refused].join(" ");
  showRequests(part("requests"), part("request-bytes"));
  part("sent").hidden = false;
  part("message").hidden = true;
  showAnswer(found.answer, (performance.now() - begun) / 1000, "Where it was taken", "found on this device", "device");
}

// Answer ---------------------------------------------------------------------------------------------------------------------

async function send() {
  const map = chosenMap();
  const { run, release: sent } = now;
  const begun = performance.now();
  const answer = await server.localize(map.map, sent.message);
  if (run !== now.run || sent !== now.release) {
    return;
  }
  showAnswer(answer, (performance.now() - begun) / 1000, "What came back", "the server's answer", "server");
}

/** Show an answer, whoever found it. */
function showAnswer(answer, seconds, name, where, style) {
  const verdict = verdictOf(answer);
  [part("answer-name").textContent, part("answer-where").textContent] = [name, where];
  part("answer-where").className = `where ${style}`;
  part("verdict").textContent = verdict.text;
  part("verdict").classList.toggle("refusal", !verdict.found);
  part("evidence").replaceChildren(...evidenceRows(answer, seconds));
  part("answer").dataset.answer = JSON.stringify(answer);
  const view = now.views.get(part("map").value) ?? null;
  part("viewer-figure").hidden = view === null;
  bring("answer");
  if (view !== null) {
    viewer.show(view, verdict.found ? answer.cam_from_world : null);
    part("view-caption").textContent =
      `${view.points.length.toLocaleString("en")} of ${view.all_points.toLocaleString("en")} points of the map, its cameras in gray` +
      `${verdict.found ? ", yours in orange" : ""}. Drag to turn, scroll or press + and - to come nearer.`;
  }
}

// --------------------------------------------------------------------------------------------------------------------------

part("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  server.setToken(part("token").value);
  part("token").value = "";
  connect();
});
part("map").addEventListener("change", () => chooseMap().catch((error) => trouble(part("connection-trouble"), error)));
part("file").addEventListener("change", () => {
  const [file] = part("file").files;
  if (file !== undefined) {
    choose(file, { name: file.name });
  }
});
part("epsilon").addEventListener("input", showPromise);
part("release").addEventListener("click", () =>
  doing(part("release"), part("release-trouble"), "Drawing words ...", () => release(false)),
);
part("release-again").addEventListener("click", () =>
  doing(part("release-again"), part("release-trouble"), "Drawing words ...", () => release(true)),
);
part("find").addEventListener("click", () => doing(part("find"), part("find-trouble"), "Looking for the place ...", findAlone));
part("send").addEventListener("click", () => doing(part("send"), part("send-trouble"), "Waiting for the answer ...", send));
startCamera({ part, onPicture: (canvas) => choose(canvas, { name: "camera" }), onTrouble: (error) => trouble(part("choose-trouble"), error) });

offerPhotographs().catch((error) => trouble(part("choose-trouble"), error));
if (server.findToken()) {
  connect();
} else {
  part("token-form").hidden = false;
  if (!navigator.onLine && keptTiles() !== null) {
    useKeptTiles();
  }
}
