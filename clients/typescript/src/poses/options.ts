/** What a pose must show, and how it is searched for (veil.geometry.robust.acceptance, veil.places.poses.options). */

import { InputError } from "../errors.js";

/** Options of localization; what is left out is as veil has it in Python. */
export interface LocalizeOptions {
  /** Inlier threshold in pixels of the query. By default 8. */
  maxErrorPx?: number;
  /** Least number of inliers on different points. By default 15. */
  minInliers?: number;
  /** Largest accepted log10 of the number of chance poses that are as good. By default -6. */
  maxLog10Nfa?: number;
  /** Largest accepted standard deviation of the rotation, in degrees. By default 0.6. */
  maxTurnDeg?: number;
  /** A match is kept if nearest / second nearest distance is at most this in both directions; null keeps all mutual ones. */
  maxRatio?: number | null;
  /** Seed of the samples. */
  seed?: number;
  /** Seconds that the search and its judgment may take; then there is no pose. By default 20. */
  maxSeconds?: number;
}

/** The options with all their values. */
export type Limits = Required<LocalizeOptions>;

/** Options with their defaults. Raises InputError for values that would accept chance, or nothing. */
export function limitsOf(options: LocalizeOptions = {}): Limits {
  const { maxErrorPx = 8, minInliers = 15, maxLog10Nfa = -6, maxTurnDeg = 0.6 } = options;
  const { maxRatio = null, seed = 0, maxSeconds = 20 } = options;
  const made = { maxErrorPx, minInliers, maxLog10Nfa, maxTurnDeg, maxRatio, seed, maxSeconds };
  if (!(maxErrorPx > 0 && maxErrorPx < Infinity)) throw new InputError(`maxErrorPx must be positive and finite, got ${maxErrorPx}`);
  if (!(minInliers >= 6)) throw new InputError(`minInliers needs at least 6: fewer agree by chance; got ${minInliers}`);
  if (!(maxLog10Nfa <= 0)) throw new InputError(`maxLog10Nfa must be at most 0, got ${maxLog10Nfa}`);
  if (!(maxTurnDeg > 0)) throw new InputError(`maxTurnDeg must be positive (Infinity: any), got ${maxTurnDeg}`);
  if (maxRatio !== null && !(maxRatio > 0 && maxRatio <= 1)) throw new InputError(`maxRatio must lie in (0, 1], got ${maxRatio}`);
  if (!Number.isInteger(seed)) throw new InputError(`seed must be an integer, got ${seed}`);
  if (!(maxSeconds > 0)) throw new InputError(`maxSeconds must be positive (Infinity: any), got ${maxSeconds}`);
  return made;
}
