// A client of a Sfumato server for browsers and Node.  What is charged is asked under an Idempotency-Key, and asked again
// under the same one where nobody answered or the server was busy, so that a question is never charged twice.

const ATTEMPTS = 4;
const AGAIN = new Set([429, 502, 503, 504]);
const LONGEST_WAIT = 10; // seconds
const LOSS = ["epsilon", "delta", "rho"];

const UNTRUSTED = /^(CERT_|DEPTH_ZERO_SELF|ERR_TLS_CERT|SELF_SIGNED|UNABLE_TO_(GET_ISSUER|VERIFY))/;
const UNKNOWN_AUTHORITY =
  'If your organization signs its own certificates, pass the file of its authority, such as { ca: "authority.pem" }, ' +
  "or name the file in SSL_CERT_FILE.";
const REMEDIES = {
  CERT_HAS_EXPIRED: "Ask who runs the server to renew its certificate, and check the clock of this machine.",
  ERR_TLS_CERT_ALTNAME_INVALID: "Use the address that the certificate names, or ask who runs the server.",
};

export class ServerError extends Error {
  constructor(problem) {
    const listed = (problem.errors ?? []).map((each) => `${each.place}: ${each.reason}`).join("; ");
    super(`${problem.title}: ${listed || problem.detail}`);
    this.name = "ServerError";
    this.problem = problem;
    this.charged = problem.charged ?? null;
  }
}

const path = (name) => `/v1/datasets/${encodeURIComponent(name)}`;
const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
const media = (reply) => (reply.headers.get("content-type") ?? "").split(";")[0].trim().toLowerCase();
const foreign = (reply) =>
  new ServerError({
    title: "no reply of a Sfumato server",
    detail: "another program answers there; check the address",
    status: reply.status,
  });

const problem = async (reply) => {
  if (media(reply) === "application/problem+json") {
    const found = await reply.json().catch(() => null);
    if (found !== null && typeof found === "object") return new ServerError(found);
  }
  return new ServerError({ title: "no problem document", detail: `status ${reply.status}`, status: reply.status });
};

// A document for a request that nobody answered, and for a server whose certificate was rejected.
const unanswered = (origin, error) => {
  const code = error.cause?.code ?? error.cause?.message ?? error.name;
  if (UNTRUSTED.test(code)) {
    const detail = `${code}. ${REMEDIES[code] ?? UNKNOWN_AUTHORITY}`;
    return new ServerError({ title: `the certificate of ${origin} is not trusted`, detail, status: 0 });
  }
  const detail = `${code}; check the address, and that the server runs`;
  return new ServerError({ title: `no reply from ${origin}`, detail, status: 0 });
};

// Send by the fetch of the caller, of Node with certificates and a proxy, or of the browser.
const sender = async (address, { fetch: send, ca, proxy }) => {
  if (send !== undefined) return send;
  const node = globalThis.process?.versions?.node !== undefined;
  if (ca !== undefined && address.startsWith("http://"))
    throw new TypeError("the address begins with http://, which uses no certificates; write https://, or leave out ca");
  if (!node && (ca ?? proxy) !== undefined) throw new TypeError("a browser decides on certificates and proxies by itself");
  const connector = node ? (await import("./node.js")).connector(address, { ca, proxy }) : undefined;
  return connector ?? globalThis.fetch;
};

// The terms, with what they say of the loss in a field of its own.
const withLoss = (terms) => {
  const named = (yes) => Object.entries(terms).filter(([name]) => LOSS.includes(name) === yes);
  return { loss: Object.fromEntries(named(true)), ...Object.fromEntries(named(false)) };
};

export class SfumatoClient {
  #address;
  #key;
  #timeout;
  #options;
  #fetch;

  constructor(address, key, { timeout = 60, ...options } = {}) {
    if (!/^https?:\/\//.test(address)) throw new TypeError("an address of a server begins with http:// or https://");
    if (!/^[\x21-\x7e]+$/.test(key)) throw new TypeError("a key is one word of printable ASCII; copy it again");
    this.#address = address.replace(/\/+$/, "");
    this.#key = key;
    this.#timeout = timeout;
    this.#options = options;
  }

  async datasets() {
    return (await this.#json("GET", "/v1/datasets")).datasets;
  }

  dataset(name) {
    return this.#json("GET", path(name));
  }

  budget(name) {
    return this.#json("GET", `${path(name)}/budget`);
  }

  async accuracy(name, sql, terms) {
    return (await this.#json("POST", `${path(name)}/cost`, { sql, ...withLoss(terms) })).expected;
  }

  async cost(name, sql, error, terms = {}) {
    return (await this.#json("POST", `${path(name)}/cost`, { sql, error, ...terms })).epsilon;
  }

  ask(name, sql, terms, retryKey) {
    return this.#question(name, { sql, ...withLoss(terms) }, retryKey);
  }

  query(name, query, terms, retryKey) {
    return this.#question(name, { query, ...withLoss(terms) }, retryKey);
  }

  async journal(name) {
    const entries = [];
    for (let after = 0; after !== null; ) {
      const page = await this.#json("GET", `${path(name)}/journal?limit=1000&after=${after}`);
      entries.push(...page.entries);
      after = page.next;
    }
    return entries;
  }

  async release(name, request) {
    return (await this.#json("POST", `${path(name)}/releases`, request)).job;
  }

  async anonymize(name, request) {
    return (await this.#json("POST", `${path(name)}/anonymizations`, request)).job;
  }

  progress(job) {
    return this.#json("GET", `/v1/releases/${encodeURIComponent(job)}`);
  }

  async rows(job) {
    return (await this.#file(job, "csv", "text/csv")).text();
  }

  async parquet(job) {
    return new Uint8Array(await (await this.#file(job, "parquet", "application/vnd.apache.parquet")).arrayBuffer());
  }

  async tables(job, { parquet = false } = {}) {
    return new Uint8Array(await (await this.#file(job, parquet ? "parquet" : "csv", "application/zip")).arrayBuffer());
  }

  async approvals() {
    return (await this.#json("GET", "/v1/approvals")).approvals;
  }

  approve(id) {
    return this.#json("POST", `/v1/approvals/${encodeURIComponent(id)}`, {});
  }

  refuseApproval(id) {
    return this.#json("DELETE", `/v1/approvals/${encodeURIComponent(id)}`);
  }

  draft(request) {
    return this.#json("POST", "/v1/drafts", request);
  }

  accept(request) {
    return this.#json("POST", "/v1/acceptances", request);
  }

  register(request) {
    return this.#json("POST", "/v1/datasets", request);
  }

  rename(name, to) {
    return this.#json("PUT", `${path(name)}/name`, { name: to });
  }

  retire(name, retired = true) {
    return this.#json("PUT", `${path(name)}/retirement`, { retired });
  }

  terms(name) {
    return this.#json("GET", `${path(name)}/terms`);
  }

  setTerms(name, terms) {
    return this.#json("PUT", `${path(name)}/terms`, terms);
  }

  cap(name, analyst, loss = null) {
    return this.#json("PUT", `${path(name)}/caps`, { analyst, loss });
  }

  async #file(job, format, type) {
    const reply = await this.#send("GET", `/v1/releases/${encodeURIComponent(job)}/rows?format=${format}`);
    if (media(reply) !== type) throw foreign(reply);
    return reply;
  }

  async #question(name, body, retryKey = globalThis.crypto.randomUUID()) {
    const found = await this.#json("POST", `${path(name)}/query`, body, retryKey);
    if (!Array.isArray(found.rows) || !Array.isArray(found.columns)) {
      throw new ServerError({ title: "no reply of a Sfumato server", detail: "an answer has rows and columns" });
    }
    return found;
  }

  async #json(method, place, body, retryKey) {
    const reply = await this.#send(method, place, body, retryKey);
    const found = media(reply) === "application/json" ? await reply.json().catch(() => null) : null;
    if (found === null || typeof found !== "object" || Array.isArray(found)) throw foreign(reply);
    return found;
  }

  async #send(method, place, body, retryKey) {
    const headers = { Authorization: `Bearer ${this.#key}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (retryKey !== undefined) headers["Idempotency-Key"] = retryKey;
    this.#fetch ??= await sender(this.#address, this.#options);
    const safe = retryKey !== undefined || method === "GET" || place.endsWith("/cost");
    for (let attempt = 0; ; attempt += 1) {
      const last = !safe || attempt === ATTEMPTS - 1;
      let wait = 0.1 * 2 ** attempt;
      try {
        const signal = AbortSignal.timeout(1000 * this.#timeout);
        const text = body === undefined ? undefined : JSON.stringify(body);
        const reply = await this.#fetch(this.#address + place, { method, headers, body: text, signal, credentials: "omit" });
        if (reply.ok) return reply;
        if (last || !AGAIN.has(reply.status)) throw await problem(reply);
        wait = Math.max(wait, Math.min(Number(reply.headers.get("retry-after")) || 0, LONGEST_WAIT));
      } catch (error) {
        if (error instanceof ServerError) throw error;
        if (last || UNTRUSTED.test(error.cause?.code)) throw unanswered(new URL(this.#address).origin, error);
      }
      await pause(wait);
    }
  }
}
