/** Of Node's own modules what the tests use: the page's code must not find the rest of Node's names. */

declare module 'node:http' {
  export interface IncomingMessage {
    headers: Record<string, string | string[] | undefined>;
  }
  export interface ServerResponse {
    writeHead(status: number, headers: Record<string, string>): this;
    write(text: string): boolean;
    destroy(): void;
  }
  export interface Server {
    listen(port: number, host: string, done: () => void): this;
    address(): unknown;
    closeAllConnections(): void;
    close(): void;
  }
  export function createServer(answer: (asked: IncomingMessage, answer: ServerResponse) => void): Server;
}

declare module 'node:net' {
  export interface AddressInfo {
    port: number;
  }
}
