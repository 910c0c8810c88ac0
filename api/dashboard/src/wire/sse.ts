/** The text format of server-sent events, as the HTML standard gives it. Pure: text in, messages out. */

export interface ServerMessage {
  id: string | null;
  event: string;
  data: string;
}

export class SseParser {
  private rest = '';
  private id: string | null = null;
  private event = '';
  private data: string[] = [];

  /** The messages that `text` completes; a half line waits for the next call. */
  push(text: string): ServerMessage[] {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? '';
    return lines.flatMap((line) => this.line(line));
  }

  private line(line: string): ServerMessage[] {
    if (line === '') return this.dispatch();
    if (line.startsWith(':')) return [];
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.data.push(value);
    else if (field === 'event') this.event = value;
    else if (field === 'id' && !value.includes('\0')) this.id = value;
    return [];
  }

  private dispatch(): ServerMessage[] {
    const { event, data, id } = this;
    this.event = '';
    this.data = [];
    return data.length ? [{ id, event: event || 'message', data: data.join('\n') }] : [];
  }
}

/** Ids are the numbers of an outbox, growing; anything else is only checked for being another. */
export function isAfter(id: string, last: string): boolean {
  const [a, b] = [Number(id), Number(last)];
  return Number.isFinite(a) && Number.isFinite(b) ? a > b : id !== last;
}
