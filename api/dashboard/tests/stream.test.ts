/** The tab's stream against a server that dies, hangs and comes back. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { EventStream } from '../src/wire/stream';

/** Tells numbers from the client's cursor on, and never ends a connection by itself. */
class Numbers {
  head = 0;
  readonly cursors: (string | undefined)[] = [];
  private readonly open = new Set<ServerResponse>();
  private readonly server: Server = createServer((asked, answer) => this.answer(asked, answer));

  async start(): Promise<string> {
    await new Promise<void>((done) => this.server.listen(0, '127.0.0.1', done));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
  }

  tell(upTo: number): void {
    while (this.head < upTo) {
      this.head += 1;
      this.open.forEach((answer) => answer.write(line(this.head)));
    }
  }

  /** The network is gone and no one says so: what is told now reaches nobody. */
  forget(): void {
    this.open.clear();
  }

  cut(): void {
    this.open.forEach((answer) => answer.destroy());
    this.open.clear();
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private answer(asked: IncomingMessage, answer: ServerResponse): void {
    const cursor = asked.headers['last-event-id'] as string | undefined;
    this.cursors.push(cursor);
    answer.writeHead(200, { 'content-type': 'text/event-stream' });
    answer.write(': here\n\n');
    for (let id = Number(cursor ?? this.head) + 1; id <= this.head; id += 1) answer.write(line(id));
    this.open.add(answer);
  }
}

const line = (id: number): string => `id: ${id}\nevent: sample\ndata: ${id}\n\n`;

let numbers: Numbers;
let stream: EventStream;
let seen: number[];

beforeEach(async () => {
  numbers = new Numbers();
  seen = [];
  const nothing = (): void => undefined;
  const message = (one: { data: string }): void => void seen.push(Number(one.data));
  stream = new EventStream(await numbers.start(), { opened: nothing, failedFirst: nothing, state: nothing, message });
  stream.open();
  await expect.poll(() => numbers.cursors.length).toBe(1);
  numbers.tell(3);
  await expect.poll(() => seen.length).toBe(3);
});

afterEach(() => {
  stream.close();
  numbers.stop();
});

it('goes on after a cut from the last id it saw, with no gap and no duplicate', async () => {
  numbers.cut();
  numbers.tell(6);
  await expect.poll(() => seen, { timeout: 3000 }).toEqual([1, 2, 3, 4, 5, 6]);
  expect(numbers.cursors).toEqual([undefined, '3']);
});

it('gives up a connection that is dead without a word when it is told so, as after sleep', async () => {
  numbers.forget();
  numbers.tell(6);
  stream.nudge();
  expect(numbers.cursors).toHaveLength(1);
  stream.nudge(true);
  await expect.poll(() => seen, { timeout: 3000 }).toEqual([1, 2, 3, 4, 5, 6]);
});
