/** The picture of a chosen image, as the device, the server or an attack has it. */

import { evenly, lineInImage } from "./sketches.js";

const MOST_LINES = 260;

/** Size in CSS pixels that a picture of these pixels gets in a box. */
export function fitted([width, height], [most, highest]) {
  const factor = Math.min(most / width, highest / height);
  return [Math.max(1, Math.round(width * factor)), Math.max(1, Math.round(height * factor))];
}

/** Draw a picture of an image of `size` pixels: a photograph or parts of one, then lines, then dots, in CSS colors. */
export function drawPicture(canvas, box, { size, pictures, lines, dots }) {
  const [width, height] = fitted(size, box);
  const scale = Math.min(2, devicePixelRatio);
  [canvas.width, canvas.height] = [width * scale, height * scale];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  const context = canvas.getContext("2d");
  const factor = (width * scale) / size[0];
  context.scale(factor, factor);
  for (const { image, place: [x, y, w, h] } of pictures) {
    context.drawImage(image, x, y, w, h);
  }
  for (const { ends: [from, to], color } of lines) {
    context.strokeStyle = color;
    context.globalAlpha = 0.5;
    context.lineWidth = scale / factor;
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  }
  context.globalAlpha = 0.9;
  for (const { places, color, radius } of dots) {
    context.fillStyle = color;
    const r = (radius * scale) / factor;
    for (const [x, y] of places) {
      context.beginPath();
      context.arc(x, y, r, 0, 2 * Math.PI);
      context.fill();
    }
  }
}

/** Lines of an image as strokes of a picture, at most so many as can be told apart. */
export function pictureLines(image, lines, colorOf) {
  const shown = evenly(lines.map((line, row) => ({ ends: lineInImage(image, line), color: colorOf(row) })), MOST_LINES);
  return shown.filter(({ ends }) => ends !== null);
}
