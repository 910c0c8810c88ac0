/** What another number of workers would mean, said before it is asked for. */

/** Micro-batches per worker, larger ones first: 8 over 3 is 3, 3, 2. The sum never depends on the workers. */
export function shares(microBatches: number, workers: number): number[] {
  const base = Math.floor(microBatches / workers);
  const extra = microBatches % workers;
  return Array.from({ length: workers }, (_, rank) => base + (rank < extra ? 1 : 0));
}

export function sharesText(microBatches: number, workers: number): string {
  const parts = shares(microBatches, workers);
  return parts.length > 6 ? `${parts[0]} to ${parts.at(-1)} each` : parts.join(' + ');
}
