/** A map's points and cameras, and the camera that was found, drawn on a canvas and turned with a finger or the arrow keys. */

const ZOOMS = [0.2, 4];
const TURN = 0.008;
const STEP = 0.12;

/** A drawing of a map's view; `show` adds the camera that was found. */
export class Viewer {
  #canvas;
  #view = null;
  #found = null;
  #turn = 0;
  #tilt = 0;
  #zoom = 1;
  #frame = null;

  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) {
        this.#move(event.movementX * TURN, event.movementY * TURN, 1);
      }
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.#move(0, 0, Math.exp(-event.deltaY / 600));
    });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-STEP, 0, 1], ArrowRight: [STEP, 0, 1], ArrowUp: [0, -STEP, 1], ArrowDown: [0, STEP, 1], "+": [0, 0, 1.15], "-": [0, 0, 1 / 1.15] };
      if (event.key in moves) {
        event.preventDefault();
        this.#move(...moves[event.key]);
      }
    });
  }

  /** Show a map's view, and the pose cam_from_world that was found (null: none). */
  show(view, found) {
    this.#view = view;
    this.#found = found;
    [this.#turn, this.#tilt, this.#zoom] = [0.42, 0.24, 1];
    this.#frame = fitted(frameOf(view, found), view, found, this.#turn, this.#tilt);
    this.#draw();
  }

  #move(turn, tilt, zoom) {
    this.#turn += turn;
    this.#tilt = Math.min(1.5, Math.max(-1.5, this.#tilt + tilt));
    this.#zoom = Math.min(ZOOMS[1], Math.max(ZOOMS[0], this.#zoom * zoom));
    this.#draw();
  }

  #draw() {
    if (this.#view === null || this.#canvas.clientWidth === 0) {
      return;
    }
    const scale = devicePixelRatio;
    const [width, height] = [this.#canvas.clientWidth * scale, this.#canvas.clientHeight * scale];
    [this.#canvas.width, this.#canvas.height] = [width, height];
    const context = this.#canvas.getContext("2d");
    const colors = getComputedStyle(this.#canvas);
    const project = projection(this.#frame, this.#turn, this.#tilt, this.#zoom, width, height);
    context.fillStyle = colors.getPropertyValue("--text");
    for (const point of this.#view.points) {
      const [x, y, near] = project(point);
      if (near > 0) {
        context.globalAlpha = Math.min(0.9, Math.max(0.4, 0.9 - 0.3 * (near - 1.8)));
        const side = scale * Math.min(3, Math.max(1.3, 4.4 / near));
        context.fillRect(x - side / 2, y - side / 2, side, side);
      }
    }
    context.globalAlpha = 1;
    for (const camera of this.#view.cameras) {
      drawCamera(context, project, camera, this.#frame.size, colors.getPropertyValue("--quiet"), scale);
    }
    if (this.#found !== null) {
      drawCamera(context, project, this.#found, 1.7 * this.#frame.size, colors.getPropertyValue("--sent"), 2.5 * scale);
    }
  }
}

/** Where to look from: the middle of the points, their extent, up, and the direction from which the cameras see them. */
function frameOf(view, found) {
  const cameras = found === null ? view.cameras : [...view.cameras, found];
  const axis = (k) => view.points.map((point) => point[k]).sort((a, b) => a - b);
  const axes = [0, 1, 2].map(axis);
  const at = (share) => axes.map((values) => values[Math.floor(share * (values.length - 1))]);
  const [low, middle, high] = [at(0.05), at(0.5), at(0.95)];
  const extent = length(minus(high, low)) || 1;
  // The y-axis of a camera points down: its row of the rotation is that axis in the world.
  const up = unit(cameras.reduce((sum, { rotation }) => minus(sum, rotation[1]), [0, 0, 0]));
  const centers = cameras.map(centerOf);
  const mean = centers.reduce((sum, center) => plus(sum, center), [0, 0, 0]).map((value) => value / centers.length);
  const towards = minus(mean, middle);
  const flat = minus(towards, up.map((value) => value * dot(towards, up)));
  const back = unit(length(flat) > 1e-9 ? flat : cross(up, [up[1], up[2], up[0]]));
  // The middle between the points and the cameras, so that both are in the picture.
  const target = plus(middle, towards.map((value) => 0.45 * value));
  return { target, back, up, side: cross(up, back), reach: 0.62 * extent + 0.75 * length(towards), size: 0.04 * extent };
}

/** A frame with the middle and the extent of what is seen of it at first, but for the outermost points. */
function fitted(frame, view, found, turn, tilt) {
  const seen = ray({ ...frame, middle: [0, 0] }, turn, tilt, 1);
  const cameras = (found === null ? view.cameras : [...view.cameras, found]).map((pose) => seen(centerOf(pose)));
  const points = view.points.map(seen);
  const box = [0, 1].map((k) => {
    const values = points.map((place) => place[k]).sort((a, b) => a - b);
    const inner = [values[Math.floor(0.03 * values.length)], values[Math.floor(0.97 * (values.length - 1))]];
    return [Math.min(inner[0], ...cameras.map((place) => place[k])), Math.max(inner[1], ...cameras.map((place) => place[k]))];
  });
  return {
    ...frame,
    middle: box.map(([low, high]) => (low + high) / 2),
    spans: box.map(([low, high]) => Math.max(high - low, 1e-9)),
  };
}

/** A function from a place in the map to its slopes from the middle of the drawing, to the right and down, and its distance. */
function ray({ target, back, up, side, reach, middle }, turn, tilt, zoom) {
  const ground = plus(scaled(back, Math.cos(turn)), scaled(side, Math.sin(turn)));
  const behind = plus(scaled(ground, Math.cos(tilt)), scaled(up, Math.sin(tilt)));
  const right = unit(cross(up, ground));
  const top = cross(behind, right);
  const distance = (2.3 * reach) / zoom;
  return (place) => {
    const from = minus(place, target);
    const depth = distance - dot(from, behind);
    return [dot(from, right) / depth - middle[0], -dot(from, top) / depth - middle[1], depth / reach];
  };
}

/** A function from a place in the map to x, y in pixels and its distance in units of the scene's. */
function projection(frame, turn, tilt, zoom, width, height) {
  const seen = ray(frame, turn, tilt, zoom);
  const focal = 0.84 * Math.min(width / frame.spans[0], height / frame.spans[1]);
  return (place) => {
    const [x, y, near] = seen(place);
    return [width / 2 + focal * x, height / 2 + focal * y, near];
  };
}

/** Draw a camera as a pyramid from its center to its image. */
function drawCamera(context, project, pose, size, color, lineWidth) {
  const { rotation } = pose;
  const center = centerOf(pose);
  const corners = [[-0.7, -0.95], [0.7, -0.95], [0.7, 0.95], [-0.7, 0.95]].map(([x, y]) =>
    [0, 1, 2].map((k) => center[k] + size * (x * rotation[0][k] + y * rotation[1][k] + 1.6 * rotation[2][k])),
  );
  const places = [center, ...corners].map(project);
  if (places.some(([, , near]) => near <= 0)) {
    return;
  }
  context.strokeStyle = color;
  context.lineWidth = lineWidth;
  context.lineJoin = "round";
  context.beginPath();
  for (const [from, to] of [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [2, 3], [3, 4], [4, 1]]) {
    context.moveTo(places[from][0], places[from][1]);
    context.lineTo(places[to][0], places[to][1]);
  }
  context.stroke();
}

/** The center of a camera: minus the transposed rotation times the translation. */
function centerOf({ rotation, translation }) {
  return [0, 1, 2].map((k) => -(rotation[0][k] * translation[0] + rotation[1][k] * translation[1] + rotation[2][k] * translation[2]));
}

const plus = (a, b) => a.map((value, k) => value + b[k]);
const minus = (a, b) => a.map((value, k) => value - b[k]);
const scaled = (a, factor) => a.map((value) => value * factor);
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const length = (a) => Math.hypot(...a);
const unit = (a) => a.map((value) => value / (length(a) || 1));
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
