/** Hard budgets of epsilon: refusals, with numbers, of releases that would exceed one. */

import { type Charge, composedEpsilon } from "./composition.js";
import { InputError, ReleaseRefused } from "./errors.js";
import { general, outward } from "./numbers.js";

/** What a budget limits: each image, one feature of every release of the session, or all that the ledger holds. */
export type BudgetUnit = "image" | "point" | "session";

const LIMITED: Record<BudgetUnit, string> = {
  image: "each image",
  point: "a point that every photograph of the session shows",
  session: "the session",
};
const MIN_DELTA = 1e-15;

/** A limit of epsilon for everything that is released in words; `epsilon` is the exact composition at `delta`. */
export interface Budget {
  unit: BudgetUnit;
  epsilon: number;
  delta: number;
}

/** Raise InputError unless a budget's epsilon is finite and >= 0 and its delta lies between 1e-15 and 1. */
export function requireBudget({ unit, epsilon, delta }: Budget): void {
  if (!(unit in LIMITED)) throw new InputError(`a budget is of an image, a point or the session, got '${unit}'`);
  if (!(epsilon >= 0 && epsilon < Infinity)) {
    throw new InputError(`a budget's epsilon must be finite and >= 0, got ${general(epsilon)}; infinity limits nothing`);
  }
  if (!(delta >= MIN_DELTA && delta < 1)) {
    throw new InputError(`a budget's delta must lie between ${MIN_DELTA} and 1, got ${general(delta)}; 1e-6 is usual`);
  }
}

/** Epsilon of all charges together at a budget's delta; never below the exact one. */
export function spent(budget: Budget, charges: readonly Charge[]): number {
  const counted = budget.unit === "point" ? charges.map(({ mechanism, features }) => ({ mechanism, features: Math.min(features, 1) })) : charges;
  return composedEpsilon(counted, budget.delta);
}

/** Raise ReleaseRefused if the release `more` of the image called `name` would exceed a budget beside `charges`. */
export function requireRoom(budget: Budget, charges: readonly Charge[], more: Charge, name: string): void {
  const then = spent(budget, [...charges, more]);
  if (then <= budget.epsilon) return;
  const { epsilon, dictionarySize, m } = more.mechanism;
  throw new ReleaseRefused(
    `${name}: the budget of ${LIMITED[budget.unit]} is epsilon ${outward(budget.epsilon, 6)} at delta ` +
      `${general(budget.delta)}. Spent so far: ${outward(spent(budget, charges))}. With ${more.features} features at epsilon ` +
      `${outward(epsilon, 6)} (K=${dictionarySize}, m=${m}) it would be ${outward(then)}; nothing was released. Send fewer ` +
      "features, or take a smaller epsilon",
  );
}
