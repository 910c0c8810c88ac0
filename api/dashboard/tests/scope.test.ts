import { expect, it } from 'vitest';
import { denial } from '../src/domain/scope';
import type { Scope, Session } from '../src/wire/session';

const holder = (...scopes: Scope[]): Session => ({ key_asked: true, name: 'ada', scopes });

it('lets everybody do everything where no key is asked for, and refuses nobody before it knows who it is', () => {
  expect(denial({ key_asked: false, name: null, scopes: [] }, 'admin')).toBeNull();
  expect(denial(null, 'submit')).toBeNull();
});

it('knows that a scope includes those before it', () => {
  expect(denial(holder('submit'), 'read')).toBeNull();
  expect(denial(holder('admin'), 'submit')).toBeNull();
  expect(denial(holder('read', 'submit'), 'submit')).toBeNull();
});

it('says which key lacks which scope', () => {
  expect(denial(holder('read'), 'submit')).toBe('Not permitted: the key ada has the scope read, this asks for submit.');
  expect(denial({ key_asked: true, name: null, scopes: [] }, 'submit')).toMatch(/sign in with a key that has the scope submit/);
});
