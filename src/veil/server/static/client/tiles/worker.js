/** The worker's own file, for browsers and Node.js: jobs come as messages, and each is answered by one. */
import { VeilError } from "../errors.js";
import { Jobs } from "./jobs.js";
const jobs = new Jobs();
function answer(port, job) {
    try {
        port.postMessage({ result: jobs.done(job) });
    }
    catch (error) {
        const { name, message } = error;
        port.postMessage({ error: { name: error instanceof VeilError ? name : "VeilError", message } });
    }
}
if ("WorkerGlobalScope" in globalThis) {
    const port = globalThis;
    globalThis.addEventListener("message", (event) => answer(port, event.data));
}
else {
    const module = "node:worker_threads";
    const { parentPort } = (await import(module));
    parentPort.on("message", (job) => answer(parentPort, job));
}
