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

/** A global of the runtime. Raises RuntimeLacks, with its name, where it is not there. */
export function needed<T>(global: T | undefined, name: string): T {
  if (global === undefined) throw new RuntimeLacks(`this runtime has no ${name}; use Node.js 20 or later, or a newer browser`);
  return global;
}
