// Requests in Node that trust an authority of one's own or go through a proxy, which its fetch offers no options for.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { Readable } from "node:stream";
import tls from "node:tls";

const BUNDLES = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
const variable = (name) => process.env[name.toLowerCase()] || process.env[name];

/** Return a function like fetch; undefined if neither the caller nor the environment names certificates or a proxy. */
export const connector = (address, { ca, proxy }) => {
  const server = new URL(address);
  const certificates = server.protocol === "https:" ? authorities(ca) : undefined;
  const through = proxy ?? proxyOfEnvironment(server);
  if (certificates === undefined && through === undefined) return undefined;
  return (url, init) => send(new URL(url), init, { ca: certificates, proxy: through && new URL(through) });
};

const authorities = (ca) => {
  if (ca !== undefined) return [pem(ca, "")];
  const bundle = BUNDLES.find((name) => process.env[name]);
  if (bundle === undefined) return undefined;
  const extra = process.env.NODE_EXTRA_CA_CERTS;
  return [pem(process.env[bundle], `${bundle} of the environment: `), ...(extra ? [pem(extra, "NODE_EXTRA_CA_CERTS: ")] : [])];
};

const pem = (file, place) => {
  let text = "";
  try {
    text = readFileSync(file, "utf8");
  } catch {
    // the same message as for a file without certificates
  }
  if (!text.includes("-----BEGIN CERTIFICATE-----")) {
    throw new TypeError(`${place}${file} holds no certificates in PEM that can be read`);
  }
  return text;
};

const proxyOfEnvironment = ({ protocol, hostname }) => {
  const named = variable(protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY") || variable("ALL_PROXY");
  if (!named || /^(localhost|127\.[\d.]+|\[::1\])$/.test(hostname) || direct(hostname)) return undefined;
  return named.includes("://") ? named : `http://${named}`;
};

// Tells whether NO_PROXY lists a host, one of its parent domains, or everything.
const direct = (hostname) =>
  (variable("NO_PROXY") ?? "")
    .split(",")
    .map((each) => each.trim().replace(/:\d+$/, "").replace(/^\*?\./, ""))
    .some((each) => each === "*" || (each !== "" && (hostname === each || hostname.endsWith(`.${each}`))));

const send = async (url, { method, headers, body, signal }, { ca, proxy }) => {
  try {
    const options = { method, headers, signal, ca };
    if (proxy === undefined) return await replied(url, options, body);
    const login = proxy.username ? `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}` : null;
    const more = login ? { "Proxy-Authorization": `Basic ${Buffer.from(login).toString("base64")}` } : {};
    if (url.protocol === "http:") {
      return await replied(proxy, { ...options, path: url.href, headers: { ...headers, ...more, Host: url.host } }, body);
    }
    const socket = await tunnel(proxy, url, more, signal);
    const createConnection = () => tls.connect({ socket, servername: url.hostname, ca });
    return await replied(url, { ...options, createConnection }, body);
  } catch (error) {
    if (error.name === "AbortError" || error.name === "TimeoutError") throw error;
    throw new TypeError("fetch failed", { cause: error }); // as fetch does
  }
};

const library = (url) => (url.protocol === "https:" ? https : http);

const replied = (url, options, body) =>
  new Promise((done, fail) => {
    const request = library(url).request(url, options, (message) => {
      const headers = new Headers();
      for (const [name, value] of Object.entries(message.headersDistinct)) for (const each of value) headers.append(name, each);
      const empty = [204, 205, 304].includes(message.statusCode);
      done(new Response(empty ? null : Readable.toWeb(message), { status: message.statusCode, headers }));
    });
    request.on("error", fail);
    request.end(body);
  });

const tunnel = (proxy, url, headers, signal) =>
  new Promise((done, fail) => {
    const path = `${url.hostname}:${url.port || 443}`;
    const request = library(proxy).request(proxy, { method: "CONNECT", path, headers: { ...headers, Host: path }, signal });
    request.on("connect", (reply, socket) => {
      if (reply.statusCode === 200) return done(socket);
      socket.destroy();
      return fail(Object.assign(new Error("proxy"), { code: `the proxy answered ${reply.statusCode} ${reply.statusMessage}` }));
    });
    request.on("error", fail);
    request.end();
  });
