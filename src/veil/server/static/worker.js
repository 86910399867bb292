/** Calls to the worker that extracts and releases, as promises. */

const worker = new Worker("/static/extraction_worker.js", { type: "module" });
const waiting = new Map();
let last = 0;

worker.addEventListener("message", ({ data }) => {
  const call = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.error === undefined) {
    call.resolve(data.result);
  } else {
    call.reject(Object.assign(new Error(data.error.message), { name: data.error.name }));
  }
});

worker.addEventListener("error", (event) => {
  for (const call of waiting.values()) {
    call.reject(new Error(event.message || "this browser cannot run the page's worker"));
  }
  waiting.clear();
});

/** The result of a task of the worker. */
export function call(task, facts) {
  last += 1;
  const id = last;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, task, ...facts });
  });
}
