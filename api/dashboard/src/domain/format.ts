/** Numbers with their units, for people: at most four digits that matter, never a bare number. */

export interface Quantity {
  value: string;
  unit: string;
}

export const NONE = '–';
const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;

/** Three significant digits below 1000, without trailing noise: 1.50, 15.0, 150. */
function threeDigits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

export function bytes(count: number | null | undefined): Quantity {
  if (count === null || count === undefined || !Number.isFinite(count)) return { value: NONE, unit: '' };
  let power = 0;
  let rest = count;
  while (Math.abs(rest) >= 1023.5 && power < BYTE_UNITS.length - 1) {
    rest /= 1024;
    power += 1;
  }
  return { value: power === 0 ? String(Math.round(rest)) : threeDigits(rest), unit: BYTE_UNITS[power] ?? 'B' };
}

/** 950, 12.3k, 4.56M */
export function short(count: number | null | undefined): string {
  if (count === null || count === undefined || !Number.isFinite(count)) return NONE;
  const size = Math.abs(count);
  if (size < 999.5) return Number.isInteger(count) ? String(count) : threeDigits(count);
  if (size < 999_500) return `${threeDigits(count / 1e3)}k`;
  if (size < 999_500_000) return `${threeDigits(count / 1e6)}M`;
  return `${threeDigits(count / 1e9)}G`;
}

export const tokensRate = (rate: number | null | undefined): Quantity => ({
  value: short(rate),
  unit: rate === null || rate === undefined || !Number.isFinite(rate) ? '' : 'tokens/s',
});

/** 12 345 with a thin space, so that digits line up and are never mistaken for a decimal comma. */
export function whole(count: number | null | undefined): string {
  if (count === null || count === undefined || !Number.isFinite(count)) return NONE;
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

/** Steps along an axis: 200k where all of them can be said so without rounding, in full where one cannot. */
export function stepLabels(places: readonly number[]): (string | null)[] {
  const briefly = (step: number): string => (step < 100_000 ? String(step) : short(step));
  const label = places.filter(Number.isInteger).every((step) => valueOf(briefly(step)) === step) ? briefly : whole;
  return places.map((place) => (Number.isInteger(place) ? label(place) : null));
}

/** What was said in short, as a number again. */
const valueOf = (said: string): number => Math.round(parseFloat(said) * ({ k: 1e3, M: 1e6, G: 1e9 }[said.slice(-1)] ?? 1));

/** A loss, a norm, a learning rate: four significant digits, exponent where the number asks for one. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : value.toPrecision(4);
}

/** 42 ms, 1.20 s, 35 s, 1 min 12 s, 2 h 03 min, 3 d 4 h */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const s = Math.max(0, seconds);
  if (s < 1e-9) return '0 s';
  if (s < 0.9995) return `${threeDigits(s * 1000)} ms`;
  if (s < 9.995) return `${s.toFixed(2)} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const minutes = Math.floor((s + 0.5) / 60);
  if (minutes < 60) return `${minutes} min ${pad(Math.floor(s + 0.5) % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${pad(minutes % 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const pad = (n: number): string => String(n).padStart(2, '0');

/** A guess or an age, where seconds behind hours would be noise: 45 s, 4 min 30 s, 36 min, 2 h 05 min, 3 d. */
export function roughly(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 59.5) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 600) return duration(seconds);
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 86_400 ? duration(seconds) : `${Math.floor(seconds / 86_400)} d`;
}

/** One unit only: 12 s ago, 7 min ago, 13 h ago, 2 d ago. */
export function ago(seconds: number): string {
  if (seconds < 1.5) return 'just now';
  if (seconds < 59.5) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86_400)} d ago`;
}

/** A tick of an axis: as few digits as the number has. */
export function tick(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1).replace('.0e', 'e');
  return String(Number(value.toPrecision(4)));
}

export const capital = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1);

/** In the reader's own zone; the exact UTC instant belongs in the title. */
export function clockTime(iso: string | null): string {
  if (!iso) return NONE;
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? NONE : date.toLocaleTimeString(undefined, { hour12: false });
}

export function dayTime(iso: string | null): string {
  if (!iso) return NONE;
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return NONE;
  return date.toLocaleString(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hour12: false });
}

export const utc = (iso: string | null): string =>
  iso ? `${iso.replace('T', ' ').replace(/(\.\d+)?(Z|\+00:00)$/, '')} UTC` : '';

/** Seconds between two instants, or null where one is unknown. */
export function secondsBetween(from: string | null, to: string | number | null): number | null {
  if (from === null || to === null) return null;
  const end = typeof to === 'number' ? to : Date.parse(to);
  const seconds = (end - Date.parse(from)) / 1000;
  return Number.isFinite(seconds) ? seconds : null;
}

export const text = (quantity: Quantity): string => (quantity.unit ? `${quantity.value} ${quantity.unit}` : quantity.value);
