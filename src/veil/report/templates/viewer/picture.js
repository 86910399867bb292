/** The picture of a chosen image, as the device, the server or an attack has it. */

import { evenly, lineInImage } from "./sketches.js";

const MOST_LINES = 260;
const GAP = 6;
const FRAME = "#8888";

/** Size in CSS pixels that a picture of these pixels gets in a box. */
export function fitted([width, height], [most, highest]) {
  const factor = Math.min(most / width, highest / height);
  return [Math.max(1, Math.round(width * factor)), Math.max(1, Math.round(height * factor))];
}

/** Draw a picture of an image of `size` pixels: a photograph or parts of one, then lines, then dots, in CSS colors. */
export function drawPicture(canvas, box, told) {
  const [width, height] = fitted(told.size, box);
  paintImage(sized(canvas, width, height), told, width / told.size[0], [0, 0]);
}

/**
 * Draw two images and what joins them, of each link its color and its places `from` in the first and `to` in the second, in
 * pixels. They stand one above the other, or side by side where the first is higher than wide.
 */
export function drawPair(canvas, box, first, second, links) {
  const across = first.size[1] > first.size[0] ? 1 : 0;
  const ratio = ({ size }) => size[1 - across] / size[across];
  const common = Math.max(1, Math.min(box[across], (box[1 - across] - GAP) / (ratio(first) + ratio(second))));
  const along = common * (ratio(first) + ratio(second)) + GAP;
  const context = sized(canvas, ...(across === 0 ? [common, along] : [along, common]));
  const shift = across === 0 ? [0, common * ratio(first) + GAP] : [common * ratio(first) + GAP, 0];
  const factors = [first, second].map(({ size }) => common / size[across]);
  paintImage(context, first, factors[0], [0, 0]);
  paintImage(context, second, factors[1], shift);
  context.strokeStyle = FRAME;
  [first, second].forEach(({ size }, k) => {
    const [x, y] = k === 0 ? [0, 0] : shift;
    context.strokeRect(x + 0.5, y + 0.5, size[0] * factors[k] - 1, size[1] * factors[k] - 1);
  });
  context.globalAlpha = 0.75;
  context.lineWidth = 1;
  for (const { from, to, color } of links) {
    const ends = [from.map((value) => value * factors[0]), to.map((value, k) => value * factors[1] + shift[k])];
    context.strokeStyle = color;
    context.beginPath();
    context.moveTo(...ends[0]);
    context.lineTo(...ends[1]);
    context.stroke();
  }
}

/** The context of a canvas of this size in CSS pixels, in which one unit is one of them. */
function sized(canvas, width, height) {
  const scale = Math.min(2, devicePixelRatio);
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

/** Paint one image, `factor` times its size, moved by `shift` CSS pixels. */
function paintImage(context, { pictures, lines, dots }, factor, shift) {
  context.save();
  context.translate(...shift);
  context.scale(factor, factor);
  for (const { image, place: [x, y, w, h] } of pictures) {
    context.drawImage(image, x, y, w, h);
  }
  for (const { ends: [from, to], color } of lines) {
    context.strokeStyle = color;
    context.globalAlpha = 0.5;
    context.lineWidth = 1 / factor;
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  }
  context.globalAlpha = 0.9;
  for (const { places, color, radius } of dots) {
    context.fillStyle = color;
    for (const [x, y] of places) {
      context.beginPath();
      context.arc(x, y, radius / factor, 0, 2 * Math.PI);
      context.fill();
    }
  }
  context.restore();
}

/** Lines of an image as strokes of a picture, at most so many as can be told apart. */
export function pictureLines(image, lines, colorOf) {
  const shown = evenly(lines.map((line, row) => ({ ends: lineInImage(image, line), color: colorOf(row) })), MOST_LINES);
  return shown.filter(({ ends }) => ends !== null);
}
