import { describe, expect, it } from 'vitest';
import { ago, bytes, duration, figure, roughly, short, stepLabels, text, tick, tokensRate, whole } from '../src/domain/format';

describe('bytes', () => {
  it.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1.00 KiB'],
    [1536 * 1024, '1.50 MiB'],
    [10 * 1024 ** 3, '10.0 GiB'],
    [1023.7 * 1024 ** 2, '1.00 GiB'],
    [150 * 1024 ** 4, '150 TiB'],
  ])('%d is %s', (count, said) => expect(text(bytes(count))).toBe(said));
  it('has a dash and no unit for what is not known', () => expect(text(bytes(null))).toBe('–'));
});

describe('numbers', () => {
  it('shortens counts', () => expect([950, 12_345, 4_560_000, 7e9].map(short)).toEqual(['950', '12.3k', '4.56M', '7.00G']));
  it('groups whole numbers by a thin space', () => expect(whole(1234567)).toBe('1\u202f234\u202f567'));
  it('tells the steps of an axis apart, and has nothing between two steps', () => {
    expect(stepLabels([0, 50_000, 100_000, 150_000])).toEqual(['0', '50000', '100k', '150k']);
    expect(stepLabels([778_410, 778_410.5, 778_411])).toEqual(['778\u202f410', null, '778\u202f411']);
    expect(stepLabels([500_000, 502_500, 505_000])).toEqual(['500\u202f000', '502\u202f500', '505\u202f000']);
    expect(stepLabels([800_000, 1_000_000, 1_200_000])).toEqual(['800k', '1.00M', '1.20M']);
    expect(stepLabels([99_999, 100_000, 100_001])).toEqual(['99\u202f999', '100\u202f000', '100\u202f001']);
  });
  it('keeps four digits of a loss', () => expect([2.71828, 0.00001234, 123456].map(figure)).toEqual(['2.718', '1.23e-5', '1.23e+5']));
  it('names what is not a number', () => expect([NaN, Infinity, -Infinity, null].map(figure)).toEqual(['NaN', '∞', '−∞', '–']));
  it('gives rates their unit', () => expect(text(tokensRate(12_000))).toBe('12.0k tokens/s'));
  it('gives ticks as few digits as they have', () => expect([7, 2.5, 0.0003, 0].map(tick)).toEqual(['7', '2.5', '3e-4', '0']));
});

describe('durations', () => {
  it.each([
    [0, '0 s'],
    [0.042, '42.0 ms'],
    [1.2, '1.20 s'],
    [35, '35 s'],
    [59.6, '1 min 00 s'],
    [72, '1 min 12 s'],
    [3599.7, '1 h 00 min'],
    [7380, '2 h 03 min'],
    [90_000, '1 d 1 h'],
  ])('%d s is %s', (seconds, said) => expect(duration(seconds)).toBe(said));
  it('is rough about long ones', () => expect([12, 270, 2171, 50_000, 200_000].map(roughly)).toEqual(['12 s', '4 min 30 s', '36 min', '13 h 53 min', '2 d']));
  it('tells ages in one unit', () => expect([0.4, 12, 61, 7300, 180_000].map(ago)).toEqual(['just now', '12 s ago', '1 min ago', '2 h ago', '2 d ago']));
});
