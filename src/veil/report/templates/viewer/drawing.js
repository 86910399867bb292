/** What WebGL2 draws: points by the million, strokes of any width, translucent planes, and pictures. */

const POINTS = {
  vertex: `#version 300 es
in vec3 place; in vec4 before; in vec4 after;
uniform mat4 clip; uniform vec3 low, stride, ink, paper, mark; uniform vec2 haze, sizes; uniform float size, blend, faint, marked, tinted;
out vec3 shade;
void main() {
  gl_Position = clip * vec4(low + stride * place, 1.0);
  float depth = gl_Position.w;
  gl_PointSize = clamp(size / depth, sizes.x, sizes.y);
  vec4 own = mix(before, after, blend);
  vec3 color = mix(mix(ink, paper, faint), own.rgb, own.a);
  float away = clamp((depth - haze.x) / (haze.y - haze.x), 0.0, 1.0);
  shade = mix(mix(color, paper, 0.6 * away), mark, tinted);
  gl_Position.z -= marked * 0.002 * depth;
}`,
  fragment: `#version 300 es
precision mediump float;
in vec3 shade; out vec4 color;
void main() {
  vec2 from = 2.0 * gl_PointCoord - 1.0;
  if (dot(from, from) > 1.0) discard;
  color = vec4(shade, 1.0);
}`,
};

// Eye-dome lighting (C. Boucheny, "Visualisation scientifique de grands volumes de donnees", 2009): a pixel is darker the more of
// its neighbors are nearer, so that one sees shape where all points have one color.
const LIGHT = {
  vertex: `#version 300 es
out vec2 at;
void main() {
  at = vec2(float((gl_VertexID << 1) & 2), float(gl_VertexID & 2));
  gl_Position = vec4(2.0 * at - 1.0, 0.0, 1.0);
}`,
  fragment: `#version 300 es
precision highp float;
in vec2 at; uniform sampler2D shown, depths; uniform vec2 step_uv, range; uniform vec3 shadow; uniform float strength;
out vec4 color;
float away(float depth) { return log2(2.0 * range.x * range.y / (range.x + range.y - (2.0 * depth - 1.0) * (range.y - range.x))); }
void main() {
  float depth = texture(depths, at).r;
  color = texture(shown, at);
  gl_FragDepth = depth;
  if (depth == 1.0 || strength == 0.0) return;
  float own = away(depth), nearer = 0.0;
  for (int k = 0; k < 8; k += 1) {
    float angle = 0.785398 * float(k);
    nearer += min(0.3, max(0.0, own - away(texture(depths, at + step_uv * vec2(cos(angle), sin(angle))).r)));
  }
  color.rgb = mix(shadow, color.rgb, exp(-strength * nearer));
}`,
};

const STROKES = {
  vertex: `#version 300 es
in vec3 start, end; in vec4 tint; in float width;
uniform mat4 clip; uniform vec2 half_px; uniform float scale;
out vec4 shade; out vec2 across;
const float NEAR = 1e-4;
void main() {
  vec4 a = clip * vec4(start, 1.0), b = clip * vec4(end, 1.0);
  float least = NEAR * max(abs(a.w), abs(b.w));
  if (a.w < least && b.w < least) { gl_Position = vec4(2.0, 2.0, 2.0, 1.0); return; }
  if (a.w < least) a = mix(a, b, (least - a.w) / (b.w - a.w));
  if (b.w < least) b = mix(b, a, (least - b.w) / (a.w - b.w));
  vec2 along = (b.xy / b.w - a.xy / a.w) * half_px;
  along /= max(length(along), 1e-6);
  // Four corners a stroke: two at its start, two at its end.
  float side = float(gl_VertexID & 1) * 2.0 - 1.0;
  float reach = 0.5 * width * scale + 1.0;
  vec4 at = (gl_VertexID & 2) == 0 ? a : b;
  at.xy += vec2(-along.y, along.x) * side * reach / half_px * at.w;
  gl_Position = at;
  shade = tint;
  across = vec2(side * reach, 0.5 * width * scale);
}`,
  fragment: `#version 300 es
precision mediump float;
in vec4 shade; in vec2 across; out vec4 color;
void main() { color = vec4(shade.rgb, shade.a * clamp(across.y + 0.5 - abs(across.x), 0.0, 1.0)); }`,
};

const PLANES = {
  vertex: `#version 300 es
in vec3 place; in vec4 tint;
uniform mat4 clip;
out vec4 shade;
void main() { gl_Position = clip * vec4(place, 1.0); shade = tint; }`,
  fragment: `#version 300 es
precision mediump float;
in vec4 shade; out vec4 color;
void main() { color = shade; }`,
};

const PICTURES = {
  vertex: `#version 300 es
in vec3 place; in vec2 corner;
uniform mat4 clip;
out vec2 at;
void main() { gl_Position = clip * vec4(place, 1.0); at = corner; }`,
  fragment: `#version 300 es
precision mediump float;
in vec2 at; uniform sampler2D picture; uniform float strength; out vec4 color;
void main() { color = vec4(texture(picture, at).rgb, strength); }`,
};

const TEXTURE_PX = 256;
const STROKE_FLOATS = 11;
const PLANE_FLOATS = 7;
const PICTURE_FLOATS = 5;

/** The drawing on one canvas. Throws an Error with a sentence for the reader where the browser has no WebGL2. */
export class Drawing {
  /** `places` are three numbers a point, of which `low` + `stride` times these are coordinates. */
  constructor(canvas, places, low, stride) {
    const count = places.length / 3;
    const gl = canvas.getContext("webgl2", { alpha: false, antialias: false, powerPreference: "high-performance" });
    if (gl === null) {
      throw new Error("This browser has no WebGL2, which draws the points. Use a newer one, or export the map as PLY");
    }
    Object.assign(this, { canvas, gl, count, low, stride, coarse: false });
    this.points = program(gl, POINTS);
    this.strokes = { ...program(gl, STROKES), count: 0, buffer: gl.createBuffer(), array: gl.createVertexArray(), corners: gl.createBuffer() };
    this.planes = { ...program(gl, PLANES), count: 0, buffer: gl.createBuffer(), array: gl.createVertexArray() };
    this.light = { ...program(gl, LIGHT), array: gl.createVertexArray(), target: gl.createFramebuffer(), size: [0, 0] };
    this.#placePoints(places);
    this.#layOut(this.strokes, [["start", 3], ["end", 3], ["tint", 4], ["width", 1]], STROKE_FLOATS);
    this.#layOut(this.planes, [["place", 3], ["tint", 4]], PLANE_FLOATS);
    this.marks = { buffer: gl.createBuffer(), count: 0 };
    this.pictures = { ...program(gl, PICTURES), count: 0, buffer: gl.createBuffer(), array: gl.createVertexArray(), textures: new Map(), shown: [] };
    this.#layOut(this.pictures, [["place", 3], ["corner", 2]], PICTURE_FLOATS);
  }

  /** Color the points: RGBA bytes before and after a change; null for none of its own. */
  color(before, after) {
    const { gl, points } = this;
    gl.bindVertexArray(points.array);
    for (const [name, values] of [["before", before], ["after", after]]) {
      const at = points.attributes[name];
      if (values === null) {
        gl.disableVertexAttribArray(at);
        continue;
      }
      if (!points.buffers.has(values)) {
        points.buffers.set(values, gl.createBuffer());
        gl.bindBuffer(gl.ARRAY_BUFFER, points.buffers.get(values));
        gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
      }
      gl.bindBuffer(gl.ARRAY_BUFFER, points.buffers.get(values));
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, 4, gl.UNSIGNED_BYTE, true, 0, 0);
    }
    gl.bindVertexArray(null);
  }

  /** Mark the points of these rows. */
  mark(rows) {
    const { gl, marks } = this;
    gl.bindVertexArray(null);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, marks.buffer);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, Uint32Array.from(rows), gl.DYNAMIC_DRAW);
    marks.count = rows.length;
  }

  /** Draw these strokes ({start, end, color, alpha, width}) and planes ({corners, color, alpha}) from now on. */
  outline(strokes, planes) {
    const { gl } = this;
    const values = new Float32Array(4 * STROKE_FLOATS * strokes.length);
    const corners = new Uint32Array(6 * strokes.length);
    strokes.forEach((stroke, k) => {
      const one = [...stroke.start, ...stroke.end, ...stroke.color, stroke.alpha, stroke.width];
      for (let corner = 0; corner < 4; corner += 1) {
        values.set(one, (4 * k + corner) * STROKE_FLOATS);
      }
      corners.set([0, 1, 2, 2, 1, 3].map((corner) => 4 * k + corner), 6 * k);
    });
    this.#fill(this.strokes, corners.length, values);
    gl.bindVertexArray(this.strokes.array);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.strokes.corners);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, corners, gl.DYNAMIC_DRAW);
    gl.bindVertexArray(null);
    this.#fill(this.planes, 3 * planes.length, planes.flatMap((p) => p.corners.flatMap((corner) => [...corner, ...p.color, p.alpha])));
  }

  /** Draw these pictures ({image, corners}: from the top left one, clockwise) from now on. */
  hang(items) {
    const { pictures } = this;
    pictures.shown = items.map(({ image }) => this.#texture(image));
    this.#fill(pictures, 4 * items.length, items.flatMap(({ corners: [a, b, c, d] }) => [...a, 0, 0, ...b, 1, 0, ...d, 0, 1, ...c, 1, 1]));
  }

  /** Pixels of the canvas to a CSS pixel: two where there is time for them, which smooths edges; one if it is `coarse`. */
  get scale() {
    if (this.coarse) {
      return 1;
    }
    return this.count > 300000 ? Math.min(devicePixelRatio, 1.5) : 2;
  }

  /** Draw one frame: the first `shown` points, and all strokes and planes. */
  frame({ matrix, shown, size, haze, ink, paper, mark, tinted, blend, faint, strength, shadow, range }) {
    const { gl, canvas, scale } = this;
    const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
    if (canvas.width !== width || canvas.height !== height) {
      [canvas.width, canvas.height] = [width, height];
    }
    this.#aim(width, height);
    gl.viewport(0, 0, width, height);
    gl.clearColor(...paper, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    const { points } = this;
    gl.useProgram(points.program);
    gl.uniformMatrix4fv(points.uniforms.clip, false, matrix);
    for (const [name, value] of Object.entries({ low: this.low, stride: this.stride, ink, paper, mark })) {
      gl.uniform3fv(points.uniforms[name], value);
    }
    gl.uniform2fv(points.uniforms.haze, haze);
    for (const [name, value] of Object.entries({ blend, faint, marked: 0, tinted: 0, size: size * scale })) {
      gl.uniform1f(points.uniforms[name], value);
    }
    // Dots are smaller on a small screen, where the same points lie closer.
    const dot = scale * Math.min(1, Math.max(0.55, Math.min(canvas.clientWidth, canvas.clientHeight) / 700));
    gl.uniform2f(points.uniforms.sizes, (this.count > 50000 ? 1.2 : 3) * dot, 6 * dot);
    gl.bindVertexArray(points.array);
    gl.drawArrays(gl.POINTS, 0, Math.min(shown, this.count));
    if (this.marks.count > 0) {
      gl.uniform1f(points.uniforms.marked, 1);
      gl.uniform1f(points.uniforms.tinted, tinted);
      gl.uniform1f(points.uniforms.size, 1.25 * size * scale);
      gl.uniform2f(points.uniforms.sizes, 3.6 * dot, 7.5 * dot);
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.marks.buffer);
      gl.drawElements(gl.POINTS, this.marks.count, gl.UNSIGNED_INT, 0);
    }
    this.#framePoints(width, height, shadow, range);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    this.#framePictures(matrix, strength);
    gl.depthMask(false);
    for (const part of [this.planes, this.strokes]) {
      gl.useProgram(part.program);
      gl.uniformMatrix4fv(part.uniforms.clip, false, matrix);
      gl.bindVertexArray(part.array);
      if (part === this.strokes) {
        gl.uniform2f(part.uniforms.half_px, width / 2, height / 2);
        gl.uniform1f(part.uniforms.scale, scale);
        gl.drawElements(gl.TRIANGLES, part.count, gl.UNSIGNED_INT, 0);
      } else {
        gl.drawArrays(gl.TRIANGLES, 0, part.count);
      }
    }
    gl.bindVertexArray(null);
    gl.depthMask(true);
    gl.disable(gl.BLEND);
  }

  /** Draw the points into textures of the canvas's size. */
  #aim(width, height) {
    const { gl, light } = this;
    gl.bindFramebuffer(gl.FRAMEBUFFER, light.target);
    if (light.size[0] === width && light.size[1] === height) {
      return;
    }
    light.size = [width, height];
    for (const [place, format, attachment] of [["shown", gl.RGBA8, gl.COLOR_ATTACHMENT0], ["depths", gl.DEPTH_COMPONENT24, gl.DEPTH_ATTACHMENT]]) {
      gl.deleteTexture(light[place] ?? null);
      light[place] = gl.createTexture();
      gl.bindTexture(gl.TEXTURE_2D, light[place]);
      gl.texStorage2D(gl.TEXTURE_2D, 1, format, width, height);
      for (const [name, value] of [[gl.TEXTURE_MIN_FILTER, gl.NEAREST], [gl.TEXTURE_MAG_FILTER, gl.NEAREST], [gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE], [gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE]]) {
        gl.texParameteri(gl.TEXTURE_2D, name, value);
      }
      gl.framebufferTexture2D(gl.FRAMEBUFFER, attachment, gl.TEXTURE_2D, light[place], 0);
    }
  }

  /** Draw the points' textures on the canvas, with their depth and in their light. */
  #framePoints(width, height, shadow, range) {
    const { gl, light, scale } = this;
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.useProgram(light.program);
    gl.bindVertexArray(light.array);
    ["shown", "depths"].forEach((name, unit) => {
      gl.activeTexture(gl.TEXTURE0 + unit);
      gl.bindTexture(gl.TEXTURE_2D, light[name]);
      gl.uniform1i(light.uniforms[name], unit);
    });
    gl.activeTexture(gl.TEXTURE0);
    gl.uniform2f(light.uniforms.step_uv, (1.2 * scale) / width, (1.2 * scale) / height);
    gl.uniform2fv(light.uniforms.range, range);
    gl.uniform3fv(light.uniforms.shadow, shadow);
    gl.uniform1f(light.uniforms.strength, this.coarse ? 0 : this.count > 50000 ? 25 : 4);
    gl.depthFunc(gl.ALWAYS);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.depthFunc(gl.LESS);
  }

  #framePictures(matrix, strength) {
    const { gl, pictures } = this;
    if (strength === 0) {
      return;
    }
    gl.useProgram(pictures.program);
    gl.uniformMatrix4fv(pictures.uniforms.clip, false, matrix);
    gl.uniform1f(pictures.uniforms.strength, strength);
    gl.bindVertexArray(pictures.array);
    pictures.shown.forEach((texture, k) => {
      gl.bindTexture(gl.TEXTURE_2D, texture);
      gl.drawArrays(gl.TRIANGLE_STRIP, 4 * k, 4);
    });
  }

  /** The texture of a picture, made smaller first: there may be many. */
  #texture(image) {
    const { gl, pictures } = this;
    if (!pictures.textures.has(image)) {
      const small = document.createElement("canvas");
      const factor = Math.min(1, TEXTURE_PX / Math.max(1, image.width, image.height));
      [small.width, small.height] = [Math.max(1, image.width * factor), Math.max(1, image.height * factor)];
      small.getContext("2d").drawImage(image, 0, 0, small.width, small.height);
      const texture = gl.createTexture();
      gl.bindTexture(gl.TEXTURE_2D, texture);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, small);
      gl.generateMipmap(gl.TEXTURE_2D);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE);
      pictures.textures.set(image, texture);
    }
    return pictures.textures.get(image);
  }

  #placePoints(places) {
    const { gl, points } = this;
    points.buffers = new Map();
    points.array = gl.createVertexArray();
    gl.bindVertexArray(points.array);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    // Four numbers a point in place of three: some hardware reads rows of six bytes slowly.
    const padded = new places.constructor(4 * this.count);
    for (let point = 0; point < this.count; point += 1) {
      for (let axis = 0; axis < 3; axis += 1) {
        padded[4 * point + axis] = places[3 * point + axis];
      }
    }
    gl.bufferData(gl.ARRAY_BUFFER, padded, gl.STATIC_DRAW);
    const isFloat = places instanceof Float32Array;
    gl.enableVertexAttribArray(points.attributes.place);
    gl.vertexAttribPointer(points.attributes.place, 3, isFloat ? gl.FLOAT : gl.UNSIGNED_SHORT, false, isFloat ? 16 : 8, 0);
    for (const name of ["before", "after"]) {
      gl.vertexAttrib4f(points.attributes[name], 0, 0, 0, 0);
    }
    gl.bindVertexArray(null);
  }

  #layOut(part, fields, floats) {
    const { gl } = this;
    gl.bindVertexArray(part.array);
    gl.bindBuffer(gl.ARRAY_BUFFER, part.buffer);
    let offset = 0;
    for (const [name, size] of fields) {
      gl.enableVertexAttribArray(part.attributes[name]);
      gl.vertexAttribPointer(part.attributes[name], size, gl.FLOAT, false, 4 * floats, 4 * offset);
      offset += size;
    }
    gl.bindVertexArray(null);
  }

  #fill(part, count, values) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, part.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, Float32Array.from(values), gl.DYNAMIC_DRAW);
    part.count = count;
  }
}

/** A program of two shaders, with its attributes and uniforms by name. */
function program(gl, { vertex, fragment }) {
  const made = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
  }
  // Attribute 0 must be an array that is always on, or drawing is slow.
  gl.bindAttribLocation(made, 0, "place");
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS) && !gl.isContextLost()) {
    throw new Error(`The graphics driver refuses a shader: ${gl.getProgramInfoLog(made)}`);
  }
  const names = (count, info, place) =>
    Object.fromEntries(
      Array.from({ length: gl.getProgramParameter(made, count) }, (_, index) => info(index).name).map((name) => [name, place(name)]),
    );
  return {
    program: made,
    attributes: names(gl.ACTIVE_ATTRIBUTES, (k) => gl.getActiveAttrib(made, k), (name) => gl.getAttribLocation(made, name)),
    uniforms: names(gl.ACTIVE_UNIFORMS, (k) => gl.getActiveUniform(made, k), (name) => gl.getUniformLocation(made, name)),
  };
}
