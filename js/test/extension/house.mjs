// All that the extension meets in a test: a search page, a real collector, and a proxy that sees every request.
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, request as ask } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../../..", import.meta.url));
const python = process.env.PYTHON ?? join(root, ".venv/bin/python");

async function listen(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server.address().port;
}

function closing(server) {
  return () => {
    server.closeAllConnections();
    server.close();
  };
}

/** Serve the example's search page. */
export async function startSearchPage() {
  const page = readFileSync(join(root, "examples/extension/search-page/index.html"));
  const server = createServer((_, response) => response.setHeader("Content-Type", "text/html").end(page));
  return { address: `http://localhost:${await listen(server)}`, close: closing(server) };
}

/** Serve a site of somebody else, who wants a search of his choice reported: one page for each way to lead there. */
export async function startOtherSite(target) {
  const pages = {
    "/link": `<a href="${target}">a nice page</a>`,
    "/noreferrer": `<a rel="noreferrer" href="${target}">a nice page</a>`,
    "/script": `<script>location = "${target}"</script>`,
    "/replace": `<script>location.replace("${target}")</script>`,
    "/refresh": `<meta http-equiv="refresh" content="0; url=${target}">`,
    "/form": `<form action="${target.split("?")[0]}"><input name="q" value="${new URL(target).searchParams.get("q")}"></form><script>document.forms[0].submit()</script>`,
    "/frame": `<iframe src="${target}"></iframe>`,
    "/opener": `<button onclick="globalThis.w = window.open('${target.split("?")[0]}')">open</button>`,
  };
  const server = createServer((request, response) => {
    if (request.url === "/redirect") return void response.writeHead(302, { Location: target }).end();
    response.setHeader("Content-Type", "text/html").end(`<!doctype html>${pages[request.url] ?? ""}`);
  });
  return { address: `http://127.0.0.1:${await listen(server)}`, ways: ["/redirect", ...Object.keys(pages)], close: closing(server) };
}

/**
 * Stand between the browser and the network: everything goes through here, loopback too, and is written down.
 * Only this machine is reached. `forge` may change what a collector answers to a GET.
 */
export async function startProxy() {
  const proxy = { seen: [], forge: null };
  const { seen } = proxy;
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const noted = { method: request.method, url: request.url, headers: request.rawHeaders.join("\n"), body: body.toString(), status: 0 };
    seen.push(noted);
    const { hostname, port, pathname, search } = new URL(request.url);
    if (!["localhost", "127.0.0.1"].includes(hostname)) return void response.writeHead(502).end();
    const onward = ask({ host: "127.0.0.1", port, path: pathname + search, method: request.method, headers: request.headers }, (answer) => {
      noted.status = answer.statusCode;
      const { "content-length": _, ...headers } = answer.headers;
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => {
        const text = Buffer.concat(parts);
        response.writeHead(answer.statusCode, headers).end(request.method === "GET" && proxy.forge ? proxy.forge(text.toString()) : text);
      });
    });
    onward.on("error", () => response.writeHead(502).end());
    onward.end(body);
  });
  server.on("connect", (request, socket) => {
    seen.push({ method: "CONNECT", url: `https://${request.url}`, headers: "", body: "", status: 0 });
    socket.end("HTTP/1.1 502 Bad Gateway\r\n\r\n");
  });
  return Object.assign(proxy, { address: `127.0.0.1:${await listen(server)}`, close: closing(server) });
}

/** Run `hushquery serve` with the example's task, its period shortened. */
export async function startCollector(folder, period, precision) {
  if (!existsSync(python)) throw new Error(`no ${python}: run "make setup", or say PYTHON=... with hushquery installed`);
  const text = readFileSync(join(root, "examples/extension/task.toml"), "utf8");
  writeFileSync(join(folder, "task.toml"), text.replace('"2m"', `"${period}"`).replace('"1m"', `"${precision}"`));
  const options = ["--task", "task.toml", "--port", "0", "--admin-port", "0", "--tick", "0.2", "--json"];
  const server = spawn(python, ["-m", "hushquery", "serve", ...options], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => server.once("exit", resolve));
  let said = "";
  for await (const chunk of server.stdout.iterator({ destroyOnReturn: false })) {
    said += chunk;
    if (said.trimEnd().endsWith("}")) break;
  }
  const { address, admin } = JSON.parse(said);
  let tasks;
  for (let tries = 0; !tasks; tries++) {
    tasks = await fetch(`${address}/v1/tasks`).then((answer) => answer.json(), (error) => {
      if (tries > 600) throw error;
    });
    if (!tasks) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return {
    address,
    task: tasks.tasks[0].id,
    /** How many uploads had this outcome, as the collector counts them. */
    async counted(reason) {
      const metrics = await (await fetch(`${admin}/metrics`)).text();
      return Number(new RegExp(`^hushquery_uploads_total\\{.*reason="${reason}"\\} (\\d+)$`, "m").exec(metrics)[1]);
    },
    async close() {
      server.kill("SIGTERM");
      await ended;
    },
  };
}
