/** What a device keeps: its secret, the ledger of its releases, budgets, words that left, and what it sent. */
/** A store in memory, for tests; with the page its secret is lost, and with it the memory of what was released. */
export class MemoryStore {
    #held = { secret: null, entries: [], budgets: [], drawn: [], sendings: [] };
    async transact(decide) {
        const { result, entry, ...changed } = decide(structuredClone(this.#held));
        const entries = entry === undefined ? this.#held.entries : [...this.#held.entries, entry];
        this.#held = structuredClone({ ...this.#held, ...changed, entries });
        return result;
    }
}
