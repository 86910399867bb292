/** Errors of veil: each message gives the value and a remedy, and never a secret or a token. */

/** What veil raises; a caller who wants all of it catches this. */
export class VeilError extends Error {
  override name = "VeilError";
}

/** A value from outside that cannot be used; also a parameter outside its range. */
export class InputError extends VeilError {
  override name = "InputError";
}

/** A message, or an answer of a server, that is not what the protocol allows. */
export class WireError extends VeilError {
  override name = "WireError";
}

/** What the client needs and this runtime does not have; nothing is wrong with what was given. */
export class RuntimeLacks extends VeilError {
  override name = "RuntimeLacks";
}

/** A release that would give away more than was agreed; nothing was released. */
export class ReleaseRefused extends VeilError {
  override name = "ReleaseRefused";
}

/** What to do about a problem: an action, such as "give", and its object; `value` is empty where it has none. */
export interface Remedy {
  action: string;
  object: string;
  value: string;
}

/** The remedies among JSON values of a server; others are left out. */
export function remediesOf(value: unknown): Remedy[] {
  const texts = (item: unknown): Remedy[] => {
    if (typeof item !== "object" || item === null) return [];
    const { action, object, value = "" } = item as Record<string, unknown>;
    return typeof action === "string" && typeof object === "string" ? [{ action, object, value: String(value) }] : [];
  };
  return Array.isArray(value) ? value.flatMap(texts) : [];
}

/** A global of the runtime. Raises RuntimeLacks, with its name, where it is not there. */
export function needed<T>(global: T | undefined, name: string): T {
  if (global === undefined) throw new RuntimeLacks(`this runtime has no ${name}; use Node.js 20 or later, or a newer browser`);
  return global;
}
