/** The bytes of a message in words, part by part (docs/reference/wire.md). */

const PARAMETERS = [3, 4, 4, 5, 8, 8, 12, 4, 5];

/** The parts of a message: what each holds, its style, and its first byte and the one after its last. */
export function partsOf(message) {
  const facts = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const count = facts.getUint32(14, true);
  const packed = facts.getUint32(70, true);
  const gravity = message[8] & 2 ? 24 : 0;
  const head = 106 + 8 * PARAMETERS[message[7]] + gravity;
  const lengths = [
    ["head", "Sizes, epsilon, camera", head],
    ["positions", `x and y of ${count.toLocaleString("en")} features`, 8 * count],
    ["rest", "Hash of the dictionary", 32],
    ["words", `${(2 * count).toLocaleString("en")} words, packed`, packed],
    ["rest", "Checksum", 16],
  ];
  let at = 0;
  return lengths.map(([style, content, length]) => {
    const part = { style, content, from: at, to: at + length };
    at += length;
    return part;
  });
}

/** Bytes as hexadecimal digits, two each, with a blank between them. */
export function hexOf(bytes) {
  return Array.from(bytes, (value) => value.toString(16).padStart(2, "0")).join(" ");
}

/** Show a message: rows of a table, and all its bytes in the colors of the rows. */
export function showMessage(message, table, pre) {
  const parts = partsOf(message);
  const row = (style, content, length) => {
    const line = document.createElement("tr");
    const swatch = Object.assign(document.createElement("span"), { className: `swatch part-${style}` });
    const cells = ["td", "td", "td"].map((tag) => document.createElement(tag));
    cells[0].append(swatch);
    cells[1].className = "count";
    cells[1].textContent = length.toLocaleString("en");
    cells[2].textContent = content;
    line.append(...cells);
    return line;
  };
  table.replaceChildren(...parts.map(({ style, content, from, to }) => row(style, content, to - from)));
  pre.replaceChildren(
    ...parts.map(({ style, from, to }) =>
      Object.assign(document.createElement("span"), {
        className: `part-${style}`,
        textContent: `${hexOf(message.subarray(from, to))} `,
      }),
    ),
  );
  pre.scrollTop = 0;
}
