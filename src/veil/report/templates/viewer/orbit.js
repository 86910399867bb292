/** The eye: it turns about a target, with mouse, fingers or keys. */

import { clipFromWorld, cross, dot, minus, norm, plus, quantile, scaled, unit } from "./vectors.js";

const TURN = 0.006;
const STEP = 0.1;
const CLICK_PX = 6;
const FOCAL = 1.25; // of the shorter side of the free part of the canvas

/** An eye over a canvas. It calls `onMove` when it moved, and `onClick` with a place on the canvas in CSS pixels. */
export class Orbit {
  constructor(canvas, up, onMove, onClick) {
    Object.assign(this, { canvas, up, onMove, onClick, target: [0, 0, 0], distance: 1, turn: 0.42, tilt: 0.3, reach: 1 });
    const sideways = Math.abs(up[0]) < 0.9 ? [1, 0, 0] : [0, 1, 0];
    this.back = unit(minus(sideways, scaled(up, dot(sideways, up))));
    this.free = { left: 0, top: 0, right: 0, bottom: 0 }; // what panels cover at each edge, in CSS pixels
    this.fingers = new Map();
    this.moved = 0;
    this.#listen();
  }

  /** Direction of the axes of the eye. */
  get axes() {
    const side = cross(this.up, this.back);
    const ground = plus(scaled(this.back, Math.cos(this.turn)), scaled(side, Math.sin(this.turn)));
    const behind = plus(scaled(ground, Math.cos(this.tilt)), scaled(this.up, Math.sin(this.tilt)));
    const right = unit(cross(this.up, ground));
    const eye = plus(this.target, scaled(behind, this.distance));
    return { eye, right, top: cross(behind, right), behind };
  }

  /** Focal length in CSS pixels. */
  get focalPx() {
    return FOCAL * Math.max(80, Math.min(this.#span("width"), this.#span("height")));
  }

  /** Distances between which things are drawn. */
  get range() {
    return [0.01 * this.distance, this.distance + 30 * this.reach];
  }

  /** The matrix from world to clip coordinates. */
  get matrix() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const focal = [(2 * this.focalPx) / width, (2 * this.focalPx) / height];
    const shift = [(this.free.left - this.free.right) / width, (this.free.bottom - this.free.top) / height];
    return clipFromWorld(this.axes, focal, ...this.range, shift);
  }

  /** Move the eye so far that all `musts` are seen, and all but the outermost of the `places`. */
  fit(places, musts) {
    const { right, top, behind } = this.axes;
    const along = (axis) => [...places, ...musts].map((place) => dot(place, axis));
    const middle = [right, top, behind].map((axis) => {
      const values = along(axis);
      return (quantile(values, 0.04) + quantile(values, 0.96)) / 2;
    });
    this.target = [0, 1, 2].map((k) => middle[0] * right[k] + middle[1] * top[k] + middle[2] * behind[k]);
    const halves = [0.46 * this.#span("width"), 0.46 * this.#span("height")];
    const needed = (place) => {
      const from = minus(place, this.target);
      const out = Math.max(Math.abs(dot(from, right)) / halves[0], Math.abs(dot(from, top)) / halves[1]);
      return dot(from, behind) + this.focalPx * out;
    };
    this.distance = Math.max(quantile(places.map(needed), 0.96), ...musts.map(needed), 1e-3 * this.reach);
  }

  /** Stand at a place and look along a direction, at what is `away` from there. */
  stand(place, direction, away) {
    const behind = unit(scaled(direction, -1));
    this.tilt = Math.asin(Math.max(-0.999, Math.min(0.999, dot(behind, this.up))));
    this.turn = Math.atan2(dot(behind, cross(this.up, this.back)), dot(behind, this.back));
    this.distance = away;
    this.target = minus(place, scaled(this.axes.behind, away));
    this.onMove();
  }

  /** Turn by angles, and zoom by a factor. */
  move(turn, tilt, zoom) {
    this.turn += turn;
    this.tilt = Math.min(1.55, Math.max(-1.55, this.tilt + tilt));
    this.distance = Math.min(50 * this.reach, Math.max(1e-3 * this.reach, this.distance / zoom));
    this.onMove();
  }

  /** Move what is seen by so many pixels. */
  pan(x, y) {
    const { right, top } = this.axes;
    const unitPx = this.distance / this.focalPx;
    this.target = plus(this.target, plus(scaled(right, -x * unitPx), scaled(top, y * unitPx)));
    this.onMove();
  }

  #span(side) {
    const { left, right, top, bottom } = this.free;
    return side === "width" ? this.canvas.clientWidth - left - right : this.canvas.clientHeight - top - bottom;
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.moved = this.fingers.size === 0 ? 0 : Infinity;
      this.fingers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    canvas.addEventListener("pointermove", (event) => this.#drag(event));
    canvas.addEventListener("pointerup", (event) => {
      const alone = this.fingers.size === 1;
      this.fingers.delete(event.pointerId);
      if (alone && this.moved < CLICK_PX && event.button === 0) {
        this.onClick(event.clientX, event.clientY);
      }
    });
    canvas.addEventListener("pointercancel", (event) => this.fingers.delete(event.pointerId));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.move(0, 0, Math.exp(-Math.max(-90, Math.min(90, event.deltaY)) / 500));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const turns = { ArrowLeft: [-STEP, 0, 1], ArrowRight: [STEP, 0, 1], ArrowUp: [0, STEP, 1], ArrowDown: [0, -STEP, 1], "+": [0, 0, 1.15], "=": [0, 0, 1.15], "-": [0, 0, 1 / 1.15] };
      if (event.key in turns && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        this.move(...turns[event.key]);
      }
    });
  }

  #drag(event) {
    const before = this.fingers.get(event.pointerId);
    if (before === undefined) {
      return;
    }
    const now = [event.clientX, event.clientY];
    const [x, y] = [now[0] - before[0], now[1] - before[1]];
    this.moved += Math.hypot(x, y);
    if (this.fingers.size === 1) {
      this.fingers.set(event.pointerId, now);
      if (event.shiftKey || event.buttons & 6) {
        this.pan(x, y);
      } else {
        this.move(-x * TURN, y * TURN, 1);
      }
      return;
    }
    // Two fingers: their middle pans, their distance zooms. Each of them moves alone, so that half of its way is the middle's.
    const other = [...this.fingers].find(([id]) => id !== event.pointerId)[1];
    const apart = (place) => Math.max(20, norm([place[0] - other[0], place[1] - other[1], 0]));
    const zoom = apart(now) / apart(before);
    this.fingers.set(event.pointerId, now);
    this.pan(x / 2, y / 2);
    this.move(0, 0, zoom);
  }
}
