/** Keeps the page, its photographs and the tiles that it fetched, so that it works without a network. No token's answers. */

importScripts("/static/files.js"); // FILES, the names of the page's files

const KEPT = "veil-page";
const SHOWN = ["/", "/static/", "/demo/photographs", "/v1/tiles"];

const isShown = (path) => SHOWN.some((start) => (start === "/" ? path === "/" : path.startsWith(start)));

async function keepAll() {
  const kept = await caches.open(KEPT);
  await kept.addAll(["/", ...self.FILES.map((name) => `/static/${name}`), "/demo/photographs", "/v1/tiles"]);
  const { photographs } = await (await kept.match("/demo/photographs")).json();
  await kept.addAll(photographs.map(({ name }) => `/demo/photographs/${encodeURIComponent(name)}`));
}

/** The server's answer, which is kept, or the kept one where it cannot be reached. */
async function answered(request) {
  const kept = await caches.open(KEPT), { pathname } = new URL(request.url);
  try {
    const answer = await fetch(request);
    if (answer.status === 200) {
      await kept.put(pathname, answer.clone());
    }
    return answer;
  } catch (error) {
    const known = await kept.match(pathname);
    if (known === undefined) {
      throw error;
    }
    return known;
  }
}

addEventListener("install", (event) => {
  self.skipWaiting();
  event.waitUntil(keepAll());
});
addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url);
  if (event.request.method === "GET" && origin === location.origin && isShown(pathname)) {
    event.respondWith(answered(event.request));
  }
});
