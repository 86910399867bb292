/** Photographs as pixels, and drawings of what was found in them. */

const MOST_SIDE = 1024;
const MARK = "#5ad1b4";
const MARK_SHADOW = "rgba(0, 0, 0, 0.65)";

/** The upright pixels of a file or a video's present image, at most 1024 px a side, and the canvas that holds them. */
export async function pixelsOf(source) {
  const picture = source instanceof Blob ? await decoded(source) : source;
  const [wide, high] = [picture.videoWidth ?? picture.width, picture.videoHeight ?? picture.height];
  const factor = Math.min(1, MOST_SIDE / Math.max(wide, high));
  const [width, height] = [Math.round(wide * factor), Math.round(high * factor)];
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, width, height);
  picture.close?.();
  return { canvas, width, height, rgba: context.getImageData(0, 0, width, height).data };
}

async function decoded(file) {
  try {
    return await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });
  } catch {
    throw new Error("The browser cannot read this file as a photograph. JPEG and PNG always work.");
  }
}

/** Draw a photograph with its keypoints: circles of their scale, with their direction. */
export function drawFound(canvas, photograph, features) {
  const context = sized(canvas, photograph);
  context.drawImage(photograph.canvas, 0, 0);
  for (const [width, color] of [[2.6, MARK_SHADOW], [1.2, MARK]]) {
    context.lineWidth = width;
    context.strokeStyle = color;
    context.beginPath();
    for (let row = 0; row < features.count; row += 1) {
      const [x, y] = [features.keypoints[2 * row], features.keypoints[2 * row + 1]];
      const radius = Math.max(2, 2 * features.scales[row]);
      const angle = features.orientations[row];
      context.moveTo(x + radius, y);
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.moveTo(x, y);
      context.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
    }
    context.stroke();
  }
}

/** Draw the positions of a message on black. */
export function drawSeen(canvas, photograph, positions) {
  const context = sized(canvas, photograph);
  context.fillStyle = "#000";
  context.fillRect(0, 0, photograph.width, photograph.height);
  context.fillStyle = "#fff";
  for (let at = 0; at < positions.length; at += 2) {
    context.fillRect(positions[at] - 1.5, positions[at + 1] - 1.5, 3, 3);
  }
}

function sized(canvas, { width, height }) {
  canvas.width = width;
  canvas.height = height;
  return canvas.getContext("2d");
}
