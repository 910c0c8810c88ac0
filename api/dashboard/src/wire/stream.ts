/** The one stream of a tab: reads server-sent events with fetch, reconnects by itself from the last id it saw. */

import { isAfter, SseParser, type ServerMessage } from './sse';

export type StreamState = 'connecting' | 'live' | 'waiting' | 'closed';

export interface StreamListener {
  /** A connection stands. `resumed` is false for a first one and after the cursor was lost: what was shown must be fetched again. */
  opened(resumed: boolean): void;
  message(message: ServerMessage): void;
  /** No connection was ever made: what is to be shown must be asked for without a stream, if only to learn why. */
  failedFirst(): void;
  state(state: StreamState, status: number): void;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8_000;
/** The service pings every 15 s; three silent pings mean a dead connection that TCP did not report. */
const SILENCE_MS = 45_000;

export class EventStream {
  private lastId: string | null = null;
  private abort: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private closed = false;
  private everOpen = false;

  constructor(
    private readonly url: string,
    private readonly listener: StreamListener,
  ) {}

  open(): void {
    void this.connect();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.abort?.abort();
    this.listener.state('closed', 0);
  }

  /** Forget the cursor: the service said that it no longer keeps what came after it. */
  forget(): void {
    this.lastId = null;
  }

  /** Try at once, for a machine that woke up or came online. `dead`: a connection that stands is not believed in. */
  nudge(dead = false): void {
    if (this.closed) return;
    if (this.abort) {
      if (dead) this.abort.abort();
      return;
    }
    clearTimeout(this.timer);
    void this.connect();
  }

  private async connect(): Promise<void> {
    this.listener.state('connecting', 0);
    const abort = (this.abort = new AbortController());
    const headers: Record<string, string> = { accept: 'text/event-stream' };
    const resumed = this.lastId !== null;
    if (this.lastId !== null) headers['Last-Event-ID'] = this.lastId;
    let status = 0;
    try {
      const response = await fetch(this.url, { headers, signal: abort.signal, cache: 'no-store', credentials: 'same-origin' });
      status = response.status;
      if (!response.ok || !response.body) throw new Error(`HTTP ${status}`);
      this.failures = 0;
      this.everOpen = true;
      this.listener.state('live', status);
      this.listener.opened(resumed);
      await this.read(response.body.getReader(), abort);
    } catch {
      this.failures += 1;
    }
    this.abort = null;
    if (this.closed) return;
    if (!this.everOpen && this.failures === 1) this.listener.failedFirst();
    if (status === 404) this.close();
    else this.wait(status);
  }

  private async read(reader: ReadableStreamDefaultReader<Uint8Array>, abort: AbortController): Promise<void> {
    const parser = new SseParser();
    const decoder = new TextDecoder();
    for (;;) {
      const watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(watchdog));
      if (done) return;
      for (const message of parser.push(decoder.decode(value, { stream: true }))) this.deliver(message);
    }
  }

  private deliver(message: ServerMessage): void {
    if (message.id !== null) {
      if (this.lastId !== null && !isAfter(message.id, this.lastId)) return;
      this.lastId = message.id;
    }
    this.listener.message(message);
  }

  private wait(status: number): void {
    const ceiling = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.failures, 5));
    this.listener.state('waiting', status);
    this.timer = setTimeout(() => void this.connect(), ceiling * (0.5 + Math.random() / 2));
  }
}
