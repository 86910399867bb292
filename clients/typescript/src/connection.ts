/** Requests to one server under one token: JSON answers, and errors that say what to do and never show the token. */

import { concatenated } from "./bytes.js";
import { InputError, type Remedy, VeilError, WireError, needed, remediesOf } from "./errors.js";

export const MESSAGE_TYPE = "application/vnd.veil.message";
// The longest answer that is read; a server that lies must not fill the device's memory.
const MOST_ANSWER = 64 << 20;
// How long a client waits at most when a busy server says so.
const PATIENCE_MS = 60_000;
const LOCAL = ["127.0.0.1", "localhost", "[::1]"];

/** The server does not answer; what was to be sent was perhaps not. */
export class Unreachable extends VeilError {
  override name = "Unreachable";
}

/** The server refused or failed, as it said in problem+json (RFC 9457). */
export class VeilProblem extends VeilError {
  override name = "VeilProblem";

  constructor(
    /** HTTP's status. */
    readonly status: number,
    /** The problem's name, such as "refused" or "quota"; "foreign" if it is none of veil's. */
    readonly kind: string,
    readonly title: string,
    readonly detail: string,
    /** Seconds after which to ask again; null if the server says nothing. */
    readonly retryAfterS: number | null,
    /** What is wrong, without a remedy. */
    readonly problem: string = detail,
    /** What to do about it; empty where the server does not say. */
    readonly remedies: readonly Remedy[] = [],
  ) {
    super(detail);
  }
}

/** How a server is reached. */
export interface ConnectionOptions {
  /** Address, such as https://maps.example.org; plain http only to this machine, unless `allowPlain`. */
  url: string;
  /** As the server's administrator gave it. */
  token: string;
  /** Of one request; by default 60. */
  timeoutS?: number;
  allowPlain?: boolean;
  /** What sends requests; by default the environment's. */
  fetch?: typeof fetch;
}

/** One request. */
export interface Request {
  method: "GET" | "POST" | "DELETE";
  /** Parts of the path, which are quoted. */
  path: readonly string[];
  query?: Readonly<Record<string, string | number>>;
  /** A message, or JSON values. */
  message?: Uint8Array;
  value?: unknown;
  accept?: string;
  /** Whether the browser may keep the answer, as it may what is public and never changes; by default it may not. */
  isKept?: boolean;
}

function parsedUrl(text: string): URL | null {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}

/** Requests to one server under one token. */
export class Connection {
  /** The server's address, without a slash at its end. */
  readonly url: string;
  readonly #token: string;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;

  /** Raises InputError for what is no address of a server, for plain http to another machine, and for a damaged token. */
  constructor({ url, token, timeoutS = 60, allowPlain = false, fetch: send }: ConnectionOptions) {
    const parsed = parsedUrl(url);
    const isWeb = parsed !== null && ["http:", "https:"].includes(parsed.protocol);
    if (!isWeb || parsed.search || parsed.hash || parsed.username || parsed.password) {
      throw new InputError("the server's address is none; give one such as https://maps.example.org");
    }
    if (parsed.protocol === "http:" && !allowPlain && !LOCAL.includes(parsed.hostname)) {
      throw new InputError(`${parsed.origin} would get the token without encryption; use https, or allow plain http`);
    }
    if (!/^[!-~]+$/.test(token)) {
      throw new InputError("the token is empty or damaged; give it as the server's administrator told it");
    }
    this.url = parsed.href.replace(/\/+$/, "");
    this.#token = token;
    this.#timeoutMs = 1000 * timeoutS;
    if (send === undefined) needed(globalThis.fetch, "fetch");
    this.#fetch = send ?? ((...given) => globalThis.fetch(...given));
  }

  /** The JSON values of an answer. */
  async json(request: Request): Promise<unknown> {
    return JSON.parse(await this.text(request));
  }

  /** The bytes of an answer that is no JSON. Raises what `text` raises. */
  async bytes(request: Request): Promise<Uint8Array> {
    return this.#asked(request);
  }

  /**
   * The answer to a request as text in JSON. Waits while the server says that it is busy, a minute in all.
   *
   * Raises Unreachable if it does not answer, VeilProblem if it refuses, WireError for an answer that is no JSON. Redirects are
   * not followed, as they would take the token elsewhere.
   */
  async text(request: Request): Promise<string> {
    const text = new TextDecoder().decode(await this.#asked(request));
    try {
      JSON.parse(text);
    } catch {
      throw new WireError("the answer is not of a veil server; check the address");
    }
    return text;
  }

  /** The body of the answer to a request, once the server is not busy. */
  async #asked(request: Request): Promise<Uint8Array> {
    const until = Date.now() + PATIENCE_MS;
    for (;;) {
      const response = await this.#answer(request);
      const after = response.headers.get("retry-after") ?? "";
      const waitMs = /^\d+$/.test(after) ? 1000 * Number(after) : null;
      const body = await this.#read(response);
      if ([429, 503].includes(response.status) && waitMs !== null && Date.now() + waitMs < until) {
        await new Promise((resolve) => setTimeout(resolve, Math.max(1000, waitMs)));
        continue;
      }
      if (!response.ok) throw this.#problem(response.status, new TextDecoder().decode(body), waitMs);
      return body;
    }
  }

  async #answer(request: Request): Promise<Response> {
    const { method, path, query = {}, message, value, accept = "application/json", isKept = false } = request;
    const asked = new URLSearchParams(Object.entries(query).map(([name, item]) => [name, String(item)])).toString();
    const target = `${this.url}/${path.map(encodeURIComponent).join("/")}${asked ? `?${asked}` : ""}`;
    const headers: Record<string, string> = { Authorization: `Bearer ${this.#token}`, Accept: accept };
    if (message !== undefined) headers["Content-Type"] = MESSAGE_TYPE;
    if (value !== undefined) headers["Content-Type"] = "application/json";
    const body = message?.slice() ?? (value === undefined ? null : JSON.stringify(value));
    try {
      return await this.#fetch(target, {
        method,
        headers,
        body,
        redirect: "error",
        credentials: "omit",
        cache: isKept ? "default" : "no-store",
        referrerPolicy: "no-referrer",
        signal: AbortSignal.timeout(this.#timeoutMs),
      });
    } catch (error) {
      throw this.#unreachable(error);
    }
  }

  /** The body of an answer. Raises WireError for one that is too long. */
  async #read(response: Response): Promise<Uint8Array> {
    const reader = response.body?.getReader(), parts: Uint8Array[] = [];
    let length = 0;
    try {
      for (let part = await reader?.read(); part && !part.done; part = await reader!.read()) {
        length += part.value.length;
        if (length > MOST_ANSWER) break;
        parts.push(part.value);
      }
    } catch (error) {
      throw this.#unreachable(error);
    }
    if (length > MOST_ANSWER) {
      await reader?.cancel();
      throw new WireError("the server's answer is too long to be one of veil's");
    }
    return concatenated(...parts);
  }

  #problem(status: number, text: string, waitMs: number | null): VeilProblem {
    let said: Record<string, unknown> = {};
    try {
      const value: unknown = JSON.parse(text);
      if (typeof value === "object" && value !== null) said = value as Record<string, unknown>;
    } catch {
      // what is no JSON says nothing that could be told
    }
    const isVeil = typeof said.type === "string" && said.type.startsWith("urn:veil:");
    const kind = isVeil ? (said.type as string).slice("urn:veil:".length) : "foreign";
    const detail = typeof said.detail === "string" ? said.detail : `the server answered ${status}`;
    const title = typeof said.title === "string" ? said.title : "";
    const problem = typeof said.cause === "string" ? said.cause : detail;
    const remedies = remediesOf(said.remedy).map(({ action, object, value }) => ({
      action: this.#scrubbed(action),
      object: this.#scrubbed(object),
      value: this.#scrubbed(value),
    }));
    return new VeilProblem(
      status,
      this.#scrubbed(kind),
      this.#scrubbed(title),
      this.#scrubbed(detail),
      waitMs === null ? null : waitMs / 1000,
      this.#scrubbed(problem),
      remedies,
    );
  }

  #unreachable(error: unknown): Unreachable {
    const { name, message, cause } = error as { name?: string; message?: string; cause?: { code?: string } };
    const told = name === "TimeoutError" ? "it took too long" : (cause?.code ?? message ?? "unknown");
    return new Unreachable(`${this.url} does not answer (${this.#scrubbed(told)}); try again later`);
  }

  /** A text without the token, whoever put it there. */
  #scrubbed(text: string): string {
    return text.replaceAll(this.#token, "[token]");
  }
}
