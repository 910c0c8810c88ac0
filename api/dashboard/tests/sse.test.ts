import { expect, it } from 'vitest';
import { isAfter, SseParser } from '../src/wire/sse';

it('reads messages however the bytes were cut', () => {
  const text = 'event: sample\nid: 7\ndata: {"a":1}\n\n: ping\n\nid: 8\ndata: x\ndata: y\n\n';
  for (let cut = 1; cut < text.length; cut += 1) {
    const parser = new SseParser();
    const found = [...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))];
    expect(found).toEqual([
      { id: '7', event: 'sample', data: '{"a":1}' },
      { id: '8', event: 'message', data: 'x\ny' },
    ]);
  }
});

it('understands carriage returns, also at a cut', () => {
  const parser = new SseParser();
  const found = [...parser.push('id: 1\r'), ...parser.push('\ndata: a\r\n\r'), ...parser.push('\n')];
  expect(found).toEqual([{ id: '1', event: 'message', data: 'a' }]);
});

it('does not deliver half a message', () => expect(new SseParser().push('data: a\n')).toEqual([]));

it('orders ids as numbers', () => {
  expect(isAfter('10', '9')).toBe(true);
  expect(isAfter('9', '10')).toBe(false);
  expect(isAfter('9', '9')).toBe(false);
});
