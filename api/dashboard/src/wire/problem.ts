/** A refusal of the service (RFC 9457), or no answer at all. */

export interface FieldProblem {
  field: string;
  value?: unknown;
  problem: string;
  fix?: string | null;
}

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly errors: readonly FieldProblem[] = [],
  ) {
    super(detail || title);
    this.name = 'Problem';
  }

  get unreachable(): boolean {
    return this.status === 0;
  }

  get notPermitted(): boolean {
    return this.status === 401 || this.status === 403;
  }
}

/** The problem that an answer with an error status carries, whatever its body is. */
export async function problemFrom(response: Response): Promise<Problem> {
  const body = (await response.json().catch(() => null)) as Record<string, unknown> | null;
  const title = typeof body?.['title'] === 'string' ? body['title'] : `HTTP ${response.status}`;
  const detail = typeof body?.['detail'] === 'string' ? body['detail'] : '';
  const errors = Array.isArray(body?.['errors']) ? (body['errors'] as FieldProblem[]) : [];
  return new Problem(response.status, title, detail, errors);
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, 'The service does not answer', error instanceof Error ? error.message : String(error));
}
