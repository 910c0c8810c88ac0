import { defineConfig } from 'vitest/config';

// Relative asset addresses: the page works at `/` and behind a proxy's prefix alike.
// Nothing is inlined, because the page is served with `default-src 'self'`, which forbids data: images too.
export default defineConfig({
  base: './',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: ['chrome123', 'firefox121', 'safari17.5'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    reportCompressedSize: false,
  },
  server: { proxy: { '/v1': 'http://127.0.0.1:8000' } },
  test: { include: ['tests/**/*.test.ts'], environment: 'node' },
});
