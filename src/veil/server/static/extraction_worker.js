/** What is computed apart from the page's drawing: features of a photograph, and their release in words. */

import { readDictionary } from "./client/codebook_file.js";
import { Device } from "./client/device.js";
import { IndexedDbStore } from "./client/indexeddb_store.js";
import { imageDigest } from "./client/picture.js";
import { extractSift } from "./client/sift.js";

const MOST_FEATURES = 1536;
/** ITU-R 601, as veil computes gray in Python: in single precision. */
const LUMA = [0.299, 0.587, 0.114].map(Math.fround);

let device = null;
let dictionary = null;
let image = null;

const tasks = {
  async dictionary({ file }) {
    dictionary = await readDictionary(file);
    return { size: dictionary.size, digest: dictionary.digest };
  },

  async extract({ rgba, width, height }) {
    const begun = performance.now();
    const features = extractSift({ width, height, pixels: gray(rgba) }, { maxFeatures: MOST_FEATURES });
    image = { features, digest: imageDigest(rgba, width, height) };
    const { keypoints, scales, orientations, count } = features;
    return { keypoints, scales, orientations, count, seconds: (performance.now() - begun) / 1000 };
  },

  async release({ epsilon, camera, name, allowSecond }) {
    device ??= await Device.open(await IndexedDbStore.open());
    const made = await device.release({ ...image, camera }, { epsilon, dictionary }, { name, allowSecond });
    const { message, upload, imageEpsilon, basicEpsilon, notes } = made;
    return { message, positions: upload.keypoints, imageEpsilon, basicEpsilon, notes };
  },
};

function gray(rgba) {
  const pixels = new Uint8Array(rgba.length / 4);
  for (let at = 0, from = 0; at < pixels.length; at += 1, from += 4) {
    const sum = Math.fround(
      Math.fround(Math.fround(LUMA[0] * rgba[from]) + Math.fround(LUMA[1] * rgba[from + 1])) + Math.fround(LUMA[2] * rgba[from + 2]),
    );
    pixels[at] = Math.fround(sum + 0.5);
  }
  return pixels;
}

addEventListener("message", async ({ data }) => {
  try {
    postMessage({ id: data.id, result: await tasks[data.task](data) });
  } catch (error) {
    postMessage({ id: data.id, error: { name: error.name, message: error.message } });
  }
});
