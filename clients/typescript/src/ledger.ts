/** The ledger: what was released, entered before its bytes are handed out, and what is refused because of it. */

import { type Budget, type BudgetUnit, requireBudget, requireRoom } from "./budget.js";
import type { Charge } from "./composition.js";
import { remembered } from "./drawn.js";
import { ReleaseRefused } from "./errors.js";
import { SubsetMechanism } from "./mechanism.js";
import type { Entry, Held, SealedDraws, Store } from "./store.js";

/** The cost of a release: its features under its mechanism, but those that left again with earlier words. */
export function chargeOf({ mechanism, features, charged = features }: Entry): Charge {
  return { mechanism: mechanismOf(mechanism), features: charged };
}

/** Number of features of a release that left again with earlier words. */
export function shownBefore({ features, charged = features }: Entry): number {
  return features - charged;
}

/** A release that is entered nowhere, and its words that later ones are compared with; null: none. */
export interface Made {
  entry: Entry;
  draws: SealedDraws | null;
}

const known = new Map<string, SubsetMechanism>();

/** The mechanism with these parameters, one object for all releases: making it takes arithmetic with fractions. */
function mechanismOf(parameters: Entry["mechanism"]): SubsetMechanism {
  const key = `${parameters.dictionarySize} ${parameters.epsilon} ${parameters.m}`;
  const found = known.get(key) ?? new SubsetMechanism(parameters);
  known.set(key, found);
  return found;
}

/** The record of all releases of a device and of what they cost. */
export class Ledger {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Enter what `make` makes beside what is held, before its message is handed out.
   *
   * It is given back with the entry that stands for it, which is an earlier one for equal bytes.
   * Equal bytes cost nothing. Raises ReleaseRefused for other bytes of an image that was released, unless `allowSecond` is
   * set: each release of one image tells more about its descriptors, and their epsilons add up. Raises ReleaseRefused too if a
   * budget would be exceeded. All of it is one transaction.
   */
  async record<T extends Made>(make: (held: Held) => T, { allowSecond = false } = {}): Promise<T> {
    return this.#store.transact((held) => {
      const made = make(held), { entry, draws } = made;
      const same = held.entries.filter((other) => other.imageDigest === entry.imageDigest);
      const equal = same.find((other) => other.messageDigest === entry.messageDigest);
      if (equal !== undefined) return { result: { ...made, entry: equal } };
      if (same.length > 0 && !allowSecond) throw new ReleaseRefused(secondRelease(entry, same[0]!));
      for (const budget of held.budgets) {
        const before = budget.unit === "image" ? same : held.entries;
        requireRoom(budget, before.map(chargeOf), chargeOf(entry), entry.name);
      }
      const taken = same.some((other) => other.releasedAs === entry.releasedAs);
      const named = taken ? { ...entry, releasedAs: `${entry.releasedAs}-${entry.messageDigest.slice(0, 8)}` } : entry;
      const drawn = draws === null ? held.drawn : remembered(held.drawn, draws);
      return { result: { ...made, entry: named }, entry: named, drawn };
    });
  }

  /** All releases, oldest first. */
  async entries(): Promise<readonly Entry[]> {
    return this.#store.transact((held: Held) => ({ result: held.entries }));
  }

  /** The budgets in force. */
  async budgets(): Promise<readonly Budget[]> {
    return this.#store.transact((held: Held) => ({ result: held.budgets }));
  }

  /** Put a budget in force. Raises InputError for one that limits nothing. */
  async setBudget(budget: Budget): Promise<void> {
    requireBudget(budget);
    await this.#store.transact((held) => {
      const budgets = [...held.budgets.filter((other) => other.unit !== budget.unit), { ...budget }];
      return { result: undefined, budgets };
    });
  }

  /** Have no budget of a unit any more. */
  async clearBudget(unit: BudgetUnit): Promise<void> {
    await this.#store.transact((held) => {
      return { result: undefined, budgets: held.budgets.filter((other) => other.unit !== unit) };
    });
  }
}

/** The refusal of a second release: what differs from the first, and what the two together give away. */
function secondRelease(entry: Entry, first: Entry): string {
  const then = new Map(first.parameters.split(" ").map((part) => part.split("=") as [string, string]));
  const changed = entry.parameters
    .split(" ")
    .map((part) => part.split("=") as [string, string])
    .filter(([name, value]) => then.has(name) && then.get(name) !== value && !["choices", "secret"].includes(name))
    .map(([name, value]) => `${name} ${value} and not ${then.get(name)}`);
  const others = shownBefore(entry) + shownBefore(first) > 0 ? "other words of earlier releases" : "other features";
  const told = changed.length > 0 ? changed.join(", ") : others;
  return (
    `${entry.name} was already released with other choices (${first.parameters}): now ${told}; each release of one image ` +
    "tells more about its descriptors, and their epsilons add up. Release it with the same choices, or allow a second release"
  );
}
