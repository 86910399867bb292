/** Requests to the server that sent this page, and to nobody else. The token stands in a header, never in an address. */

const KEPT = "veil token";
let token = "";

/** Take the token of the address's fragment, which browsers do not send, or the one of this tab; the address forgets it. */
export function findToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    history.replaceState(null, "", location.pathname);
  }
  token = given ?? sessionStorage.getItem(KEPT) ?? "";
  return token !== "";
}

/** Use a token from now on. */
export function setToken(value) {
  token = value.trim();
  sessionStorage.setItem(KEPT, token);
}

/** Keep the token for this tab, once the server took it. */
export function keepToken() {
  sessionStorage.setItem(KEPT, token);
}

/** Forget a token that the server refused. */
export function dropToken() {
  token = "";
  sessionStorage.removeItem(KEPT);
}

/** An answer that is no success: `status`, and the server's sentence about what to do. */
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function asked(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      ...options,
      headers: { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) },
      credentials: "omit",
      referrerPolicy: "no-referrer",
    });
  } catch {
    throw new Refusal(0, "The server cannot be reached. Is it still running?");
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Refusal(answer.status, problem.detail ?? `The server answered ${answer.status}.`);
  }
  return answer;
}

/** The maps that the token may use. */
export async function maps() {
  return (await (await asked("/v1/maps")).json()).maps;
}

/** The file of a public dictionary. */
export async function dictionaryFile(digest) {
  return new Uint8Array(await (await asked(`/v1/dictionaries/${digest}`)).arrayBuffer());
}

/** Points and cameras of a public map, or null where the server shows none. */
export async function view(map) {
  try {
    return await (await asked(`/v1/maps/${map}/view`)).json();
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) {
      return null;
    }
    throw error;
  }
}

/** The server's answer to a message. */
export async function localize(map, message) {
  const options = { method: "POST", headers: { "Content-Type": "application/vnd.veil.message" }, body: message };
  return (await asked(`/v1/maps/${map}/localize`, options)).json();
}

/** The photographs that come with veil. */
export async function photographs() {
  return (await (await asked("/demo/photographs")).json()).photographs;
}

/** The file of one of them. */
export async function photograph(name) {
  return (await asked(`/demo/photographs/${encodeURIComponent(name)}`)).blob();
}
