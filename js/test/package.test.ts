/** The package itself: nothing to install with it, no address in the lock file, files that can be read. */
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const read = (path: string) => readFileSync(new URL(`../${path}`, import.meta.url), "utf8");

test("the lock file names versions and hashes, and no address", () => {
  const lock = read("package-lock.json");
  expect(lock).not.toMatch(/:\/\//);
  expect(lock).toContain('"integrity"');
});

test("there is nothing to install with it, and tools have exact versions", () => {
  const { dependencies, devDependencies } = JSON.parse(read("package.json")) as Record<string, Record<string, string>>;
  expect(dependencies).toBeUndefined();
  for (const version of Object.values(devDependencies!)) expect(version).toMatch(/^\d+\.\d+\.\d+$/);
});

test("scripts need Node alone: from version 22 on it takes no folder of tests, and PyPI's has no npm that can be called", () => {
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  for (const script of Object.values(scripts)) expect(script).not.toMatch(/\bnpm\b|--test \S+\/( |$)/);
});

test.each(readdirSync(new URL("../src", import.meta.url)))("%s has one thought, and no randomness but that of bits.ts", (name) => {
  const text = read(`src/${name}`);
  expect(text.split("\n").length).toBeLessThan(400);
  expect(text).not.toMatch(/Math\.random/);
  if (name !== "bits.ts") expect(text).not.toMatch(/getRandomValues\(|randomUUID/);
});
