/** What is no report in JSON, and payloads that no mechanism writes. */
import { describe, expect, test } from "vitest";
import { reportFromJson, reportFromText, unpack } from "../src/reading.js";
import { codeOf, unhex, vectors } from "./helpers.js";

const { json } = vectors().tasks[0]!.reports[0]!;
const text = JSON.stringify(json);

test.each([
  ["no JSON", text.slice(1), "ReportMalformed"],
  ["a list", `[${text}]`, "ReportMalformed"],
  ["null", "null", "ReportMalformed"],
  ["a repeated key", text.replace("{", '{"time":0,'), "ReportMalformed"],
  ["an unknown key", text.replace("{", '{"extra":0,'), "ReportMalformed"],
  ["a missing key", text.replace(/,"payload":"[^"]*"/, ""), "ReportMalformed"],
  ["padding", text.replace('"AA"', '"AA=="'), "ReportMalformed"],
  ["spare bits", text.replace('"AA"', '"AB"'), "ReportMalformed"],
  ["an impossible length", text.replace('"AA"', '"AAAAA"'), "ReportMalformed"],
  ["the other alphabet", text.replace('"AA"', '"+/8"'), "ReportMalformed"],
  ["an escaped name of a key twice", text.replace("{", '{"\\u0074ime":0,'), "ReportMalformed"],
  ["a number for bytes", text.replace('"AA"', "0"), "ReportMalformed"],
  ["a time with a point", text.replace(/"time":(\d+)/, '"time":$1.0'), "ReportMalformed"],
  ["a time with an exponent", text.replace(/"time":\d+/, '"time":1e3'), "ReportMalformed"],
  ["a negative time", text.replace(/"time":\d+/, '"time":-1'), "ReportMalformed"],
  ["a time beyond 2^53", text.replace(/"time":\d+/, '"time":9007199254740993'), "ReportMalformed"],
  ["a short id", text.replace(/"id":"..../, '"id":"'), "ReportMalformed"],
  ["version 2", text.replace('"version":1', '"version":2'), "ReportVersionUnknown"],
  ["version 2 with another key", text.replace('"version":1', '"version":2,"x":{"y":1.5}'), "ReportVersionUnknown"],
  ["a text for a version", text.replace('"version":1', '"version":"1"'), "ReportVersionUnknown"],
  ["too long a text", text + " ".repeat(131_071), "ReportMalformed"],
])("refuses %s", async (_, changed, code) => {
  expect(changed).not.toBe(text);
  expect(await codeOf(() => reportFromJson(changed))).toBe(code);
});

test("plain data is read like text", async () => {
  expect(reportFromJson(json).toJSON()).toEqual(json);
  expect(await codeOf(() => reportFromJson({ ...json, more: 1 }))).toBe("ReportMalformed");
  expect(await codeOf(() => reportFromJson({ ...json, time: 0.5 }))).toBe("ReportMalformed");
  expect(await codeOf(() => reportFromText("no report!"))).toBe("ReportMalformed");
});

const one = { lie: 1, k: 10 };
describe("payloads", () => {
  test.each([
    ["krr", one, "0a"],
    ["krr", one, "0000"],
    ["krr", { ...one, k: 300 }, "2c01"],
    ["oue", one, "0004"],
    ["oue", one, "00"],
    ["hadamard", one, "20"],
    ["subset", { k: 1000, omega: 2 }, "01000100"],
    ["subset", { k: 1000, omega: 2 }, "02000100"],
    ["subset", { k: 1000, omega: 2 }, "0100e803"],
    ["subset", { k: 1000, omega: 2 }, "010002"],
    ["subset", { k: 12, omega: 4 }, "0f01"],
    ["subset", { k: 12, omega: 4 }, "0710"],
    ["olh", { k: 10, g: 4 }, "000000000000000004"],
    ["olh", { k: 10, g: 4 }, "01000000ffffff3f00"],
    ["olh", { k: 10, g: 4 }, "0000000000000000"],
    ["unheard-of", one, "00"],
  ])("%s %o can't have written %s", async (name, description, payload) => {
    expect(await codeOf(() => unpack({ name, ...description }, unhex(payload)))).toBe("ReportOutOfDomain");
  });
});
