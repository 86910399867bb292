/** The worker's own file, for browsers and Node.js: jobs come as messages, and each is answered by one. */

import { VeilError } from "../errors.js";
import { type Job, Jobs } from "./jobs.js";

/** A worker's end of the channel; in browsers that is the global scope. */
interface Port {
  postMessage(message: unknown): void;
}

const jobs = new Jobs();

function answer(port: Port, job: Job): void {
  try {
    port.postMessage({ result: jobs.done(job) });
  } catch (error) {
    const { name, message } = error as Error;
    port.postMessage({ error: { name: error instanceof VeilError ? name : "VeilError", message } });
  }
}

if ("WorkerGlobalScope" in globalThis) {
  const port = globalThis as unknown as Port;
  globalThis.addEventListener("message", (event) => answer(port, (event as MessageEvent<Job>).data));
} else {
  const module = "node:worker_threads";
  const { parentPort } = (await import(module)) as { parentPort: Port & { on(name: "message", told: (job: Job) => void): void } };
  parentPort.on("message", (job) => answer(parentPort, job));
}
