/** A worker for one map, in browsers and in Node.js: one job at a time, and none longer than its time. */
import { InputError, RuntimeLacks, VeilError, WireError } from "../errors.js";
/** Raised where a job took longer than its time; the worker was ended. */
export class Overtime extends VeilError {
    name = "Overtime";
}
/** A worker that is started with the first job, and again after one that took too long. */
export class LocalizerWorker {
    opening;
    #thread = null;
    #told = () => { };
    #last = Promise.resolve();
    /** `opening` is the job that a new worker begins with. */
    constructor(opening) {
        this.opening = opening;
    }
    /**
     * The value of some work, which has the worker to itself and does jobs one after the other, each with its time in seconds.
     *
     * Raises Overtime for a job that takes longer than its time, and what jobs raise.
     */
    async run(work) {
        const before = this.#last;
        let end = () => { };
        this.#last = new Promise((resolve) => (end = resolve));
        await before;
        try {
            return await work((job, seconds) => this.#done(job, seconds));
        }
        finally {
            end();
        }
    }
    /** End the worker. */
    async close() {
        const thread = await this.#thread;
        this.#thread = null;
        thread?.terminate();
    }
    async #done(job, seconds) {
        if (this.#thread === null) {
            this.#thread = started((answer) => this.#told(answer));
            await this.#asked(this.opening, seconds);
        }
        return this.#asked(job, seconds);
    }
    async #asked(job, seconds) {
        const thread = await this.#thread;
        let timer;
        const answered = new Promise((resolve) => {
            this.#told = resolve;
            if (Number.isFinite(seconds)) {
                const error = { name: "Overtime", message: `the time of ${seconds} s was over` };
                timer = setTimeout(() => resolve({ error }), 1000 * seconds);
            }
            thread.postMessage(job);
        });
        const { result, error } = await answered;
        clearTimeout(timer);
        if (result !== undefined)
            return result;
        if (error?.name === "Overtime")
            await this.close();
        throw raised(error ?? { name: "VeilError", message: "the worker gave no answer" });
    }
}
function raised({ name, message }) {
    const kinds = { InputError, WireError, RuntimeLacks, Overtime };
    return new (kinds[name] ?? VeilError)(message);
}
/** A new worker; `told` is called with its answers, and with the error of one that cannot go on. */
async function started(told) {
    const url = new URL("./worker.js", import.meta.url);
    const failed = (message) => told({ error: { name: "VeilError", message } });
    if (typeof Worker !== "undefined") {
        const worker = new Worker(url, { type: "module" });
        worker.onmessage = ({ data }) => told(data);
        worker.onerror = ({ message }) => failed(`the worker cannot run (${message ?? "its file cannot be had"})`);
        return worker;
    }
    const name = "node:worker_threads", threads = (await import(name));
    const worker = new threads.Worker(url);
    worker.on("message", (answer) => told(answer));
    worker.on("error", (error) => failed(`the worker cannot run (${error.message})`));
    worker.unref(); // a worker that waits keeps no process from ending
    return worker;
}
