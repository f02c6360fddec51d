// A page with the built client, and a collector, on one local address.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
const golden = JSON.parse(read("../../../vectors/report_v1.json")).tasks;

/** The golden task of a mechanism, as a collector serves it. */
export function taskOf(name) {
  const vector = golden.find((one) => one.configuration.canonical.includes(`"name":"${name}"`));
  const lists = vector.task.served.head ? [[0, vector.configuration.hash]] : [];
  const served = { task: vector.task.served, configuration: JSON.parse(vector.configuration.canonical), lists };
  return { id: vector.task.id, hash: vector.configuration.hash, served };
}

/** Start the site; `down` makes the collector break off every upload. */
export async function startSite() {
  const site = { down: false, stored: new Map(), bodies: [], modules: [], asked: [], address: "", close: undefined };
  const put = (report) => {
    const text = JSON.stringify(report);
    const known = site.stored.get(report.id);
    if (known === undefined) site.stored.set(report.id, text);
    return known === undefined ? 201 : known === text ? 200 : 409;
  };
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://local.example");
    const [, id, rest] = /^\/v1\/tasks\/([0-9a-f]{64})(\/reports(?:\/[\w-]{22})?)?$/.exec(pathname) ?? [];
    if (pathname === "/") return void response.setHeader("Content-Type", "text/html").end("<!doctype html><title>test</title>");
    if (/^\/(hushquery-client|more|reading)\.js$/.test(pathname)) {
      site.modules.push(pathname);
      return void response.setHeader("Content-Type", "text/javascript").end(read(`../../dist${pathname}`));
    }
    if (!id) return void response.writeHead(404).end();
    if (!rest) {
      const vector = golden.find((one) => one.task.id === id);
      site.asked.push(request.headers);
      const { served } = taskOf(JSON.parse(vector.configuration.canonical).oracle.name);
      return void response.setHeader("ETag", '"device 17"').setHeader("Set-Cookie", "device=17").end(JSON.stringify(served));
    }
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    site.bodies.push(body);
    if (site.down) return void request.socket.destroy();
    const plain = JSON.parse(body);
    if (request.method === "PUT") return void response.writeHead(put(plain)).end();
    return void response.setHeader("Content-Type", "application/json").end(JSON.stringify({ results: plain.reports.map((one) => ({ status: put(one) })) }));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  site.address = `http://127.0.0.1:${server.address().port}`;
  site.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return site;
}
