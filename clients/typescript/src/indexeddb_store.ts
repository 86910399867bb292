/** A store in the browser's IndexedDB. Every script of the page's origin can read it, the secret too. */

import type { Budget } from "./budget.js";
import { VeilError, needed } from "./errors.js";
import type { Change, Entry, Held, SealedDraws, Sending, Store } from "./store.js";

const LAYOUT = 2; // the first one had no words of earlier releases
const SECRETS = "secrets", ENTRIES = "entries", BUDGETS = "budgets", DRAWN = "drawn", SENDINGS = "sendings";
const ALL = [SECRETS, ENTRIES, BUDGETS, DRAWN, SENDINGS];

/** A store under the name of a database of the page's origin. */
export class IndexedDbStore implements Store {
  readonly #database: IDBDatabase;

  private constructor(database: IDBDatabase) {
    this.#database = database;
    // Another tab with a newer veil must not wait for this one.
    database.onversionchange = () => database.close();
  }

  /**
   * The store of this name, made where there is none.
   *
   * The browser is asked not to evict it: with the secret goes the memory of what was released. Raises VeilError if the browser
   * keeps nothing, as in some private windows.
   */
  static async open(name = "veil"): Promise<IndexedDbStore> {
    // Not waited for: some browsers ask the user, who may never answer.
    void globalThis.navigator?.storage?.persist?.().catch(() => false);
    return new Promise((resolve, reject) => {
      const request = needed(globalThis.indexedDB, "indexedDB").open(name, LAYOUT);
      request.onupgradeneeded = () => {
        const present = request.result.objectStoreNames;
        for (const store of ALL.filter((name) => !present.contains(name))) {
          request.result.createObjectStore(store, { autoIncrement: true });
        }
      };
      request.onsuccess = () => resolve(new IndexedDbStore(request.result));
      request.onerror = () => reject(trouble(request.error));
      request.onblocked = () => reject(new VeilError("another tab holds an older store; close it and load the page again"));
    });
  }

  transact<T>(decide: (held: Held) => Change<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const transaction = this.#begun();
      const requests = ALL.map((name) => transaction.objectStore(name).getAll());
      let outcome: { change: Change<T> } | null = null, refusal: unknown = null;
      let waiting = requests.length;
      // No promise may be waited for between the requests: the transaction would end, and another tab come between.
      for (const request of requests) {
        request.onsuccess = () => {
          if (--waiting > 0) return;
          try {
            const change = decide(heldOf(requests.map(({ result }) => result as unknown[])));
            write(transaction, change);
            outcome = { change };
          } catch (error) {
            refusal = error;
            transaction.abort();
          }
        };
      }
      transaction.oncomplete = () => resolve(outcome!.change.result);
      transaction.onabort = () => reject(refusal ?? trouble(transaction.error));
    });
  }

  /** A transaction over everything. Raises VeilError if the database was closed, as for a newer veil in another tab. */
  #begun(): IDBTransaction {
    try {
      return this.#database.transaction(ALL, "readwrite", { durability: "strict" });
    } catch (error) {
      throw trouble(error as DOMException);
    }
  }

  /** Close the database; the store cannot be used any more. */
  close(): void {
    this.#database.close();
  }
}

function heldOf([secrets, entries, budgets, drawn, sendings]: unknown[][]): Held {
  return {
    secret: (secrets![0] as Uint8Array | undefined) ?? null,
    entries: entries as Entry[],
    budgets: budgets as Budget[],
    drawn: drawn as SealedDraws[],
    sendings: sendings as Sending[],
  };
}

function write(transaction: IDBTransaction, { secret, entry, budgets, drawn, sendings }: Change<unknown>): void {
  if (secret !== undefined) replace(transaction.objectStore(SECRETS), [secret]);
  if (entry !== undefined) transaction.objectStore(ENTRIES).add(entry);
  if (budgets !== undefined) replace(transaction.objectStore(BUDGETS), budgets);
  if (drawn !== undefined) replace(transaction.objectStore(DRAWN), drawn);
  if (sendings !== undefined) replace(transaction.objectStore(SENDINGS), sendings);
}

function replace(store: IDBObjectStore, values: readonly unknown[]): void {
  store.clear();
  for (const value of values) store.add(value);
}

function trouble(error: DOMException | null): VeilError {
  return new VeilError(`the browser's storage cannot be used (${error?.name ?? "unknown"}); nothing was released`);
}
