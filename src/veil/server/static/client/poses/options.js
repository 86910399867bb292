/** What a pose must show, and how it is searched for (veil.geometry.robust.acceptance, veil.places.poses.options). */
import { InputError } from "../errors.js";
/** Options with their defaults. Raises InputError for values that would accept chance, or nothing. */
export function limitsOf(options = {}) {
    const { maxErrorPx = 8, minInliers = 15, maxLog10Nfa = -6, maxTurnDeg = 0.6 } = options;
    const { maxRatio = null, seed = 0, maxSeconds = 20 } = options;
    const made = { maxErrorPx, minInliers, maxLog10Nfa, maxTurnDeg, maxRatio, seed, maxSeconds };
    if (!(maxErrorPx > 0 && maxErrorPx < Infinity))
        throw new InputError(`maxErrorPx must be positive and finite, got ${maxErrorPx}`);
    if (!(minInliers >= 6))
        throw new InputError(`minInliers needs at least 6: fewer agree by chance; got ${minInliers}`);
    if (!(maxLog10Nfa <= 0))
        throw new InputError(`maxLog10Nfa must be at most 0, got ${maxLog10Nfa}`);
    if (!(maxTurnDeg > 0))
        throw new InputError(`maxTurnDeg must be positive (Infinity: any), got ${maxTurnDeg}`);
    if (maxRatio !== null && !(maxRatio > 0 && maxRatio <= 1))
        throw new InputError(`maxRatio must lie in (0, 1], got ${maxRatio}`);
    if (!Number.isInteger(seed))
        throw new InputError(`seed must be an integer, got ${seed}`);
    if (!(maxSeconds > 0))
        throw new InputError(`maxSeconds must be positive (Infinity: any), got ${maxSeconds}`);
    return made;
}
