/** What is computed apart from the page's drawing: features of a photograph, and their release in words. */

import { readDictionary } from "./client/codebook_file.js";
import { Device } from "./client/device.js";
import { IndexedDbStore } from "./client/indexeddb_store.js";
import { grayOf, imageDigest } from "./client/picture.js";
import { extractSift } from "./client/sift.js";

const MOST_FEATURES = 1536;

let device = null;
let dictionary = null;
/** The features of the photograph that was chosen last, and the number of that choice. */
let chosen = null;

const tasks = {
  async dictionary({ file }) {
    dictionary = await readDictionary(file);
    return { size: dictionary.size, digest: dictionary.digest };
  },

  async extract({ run, rgba, width, height }) {
    const begun = performance.now();
    const features = extractSift({ width, height, pixels: grayOf(rgba) }, { maxFeatures: MOST_FEATURES });
    chosen = { run, image: { features, digest: imageDigest(rgba, width, height) } };
    const { keypoints, scales, orientations, count } = features;
    return { keypoints, scales, orientations, count, seconds: (performance.now() - begun) / 1000 };
  },

  async release({ run, epsilon, camera, name, allowSecond }) {
    const [words, { image }] = [dictionary, chosen];
    if (chosen.run !== run) {
      throw new Error("Another photograph was chosen meanwhile.");
    }
    device ??= await Device.open(await IndexedDbStore.open());
    const made = await device.release({ ...image, camera }, { epsilon, dictionary: words }, { name, allowSecond });
    const { message, upload, imageEpsilon, basicEpsilon, shownBefore, notes } = made;
    return { message, positions: upload.keypoints, imageEpsilon, basicEpsilon, shownBefore, notes };
  },
};

addEventListener("message", async ({ data }) => {
  try {
    postMessage({ id: data.id, result: await tasks[data.task](data) });
  } catch (error) {
    postMessage({ id: data.id, error: { name: error.name, message: error.message } });
  }
});
