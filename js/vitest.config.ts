import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["test/*.test.ts"], setupFiles: ["fake-indexeddb/auto"], testTimeout: 60_000 },
});
