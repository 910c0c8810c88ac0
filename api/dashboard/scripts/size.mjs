// Fails the build when all that a browser loads is over 200 KB gzipped.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const LIMIT_BYTES = 200 * 1000;
const root = new URL('../dist', import.meta.url).pathname;

function files(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}

const total = files(decodeURIComponent(root)).reduce((sum, path) => sum + gzipSync(readFileSync(path)).length, 0);
console.log(`dashboard: ${(total / 1000).toFixed(1)} KB gzipped in all (limit ${LIMIT_BYTES / 1000} KB)`);
if (total > LIMIT_BYTES) {
  console.error('The dashboard is over its limit; find what grew with `npx vite build --sourcemap`.');
  process.exit(1);
}
