import { describe, expect, it } from 'vitest';
import { capacityOf, slotMemory } from '../src/domain/capacity';
import { byTier, offloadLabel, restingOf, sum, TIERS, withOther } from '../src/domain/tiers';
import type { ClusterNode } from '../src/wire/cluster';

const spec = (offload?: unknown) => ({ model: 'gpt-tiny', ...(offload === undefined ? {} : { offload }) });

describe('tiers', () => {
  const kinds = { params: 100, grads: 50, optimizer: 600, activations: 40, gathered: 10 };
  it('hold all on the device where nothing is offloaded', () => {
    const placed = byTier(kinds, { host: 0, nvme: 0 }, restingOf(spec(), 2));
    expect(placed).toEqual({ device: kinds, host: {}, nvme: {} });
  });
  it.each([
    [spec('cpu'), 2, { host: 650, nvme: 0 }, { params: 100, grads: 0, optimizer: 0 }, { grads: 50, optimizer: 600 }],
    [spec('cpu'), 3, { host: 750, nvme: 0 }, { params: 0, grads: 0, optimizer: 0 }, { params: 100, grads: 50, optimizer: 600 }],
    [spec({ optimizer: 'cpu', params: 'none', ratio: 0.5 }), 3, { host: 325, nvme: 0 }, { params: 100, grads: 25, optimizer: 300 }, { grads: 25, optimizer: 300 }],
  ])('%j at stage %d are told apart by what rests where', (one, stage, far, device, host) => {
    const placed = byTier(kinds, far, restingOf(one, stage));
    expect(placed.device).toMatchObject(device);
    expect(placed.host).toEqual(host);
  });
  it('say what only passes through host memory on its way to a disk, and lose no byte', () => {
    const placed = byTier(kinds, { host: 50 + 7, nvme: 600 }, restingOf(spec('nvme'), 2));
    expect(placed.host).toEqual({ grads: 50, staging: 7 });
    expect(placed.nvme).toEqual({ optimizer: 600 });
    expect(TIERS.reduce((total, tier) => total + sum(placed[tier]), 0)).toBe(sum(kinds) + 7);
  });
  it('have with them what no kind accounts for, in the memory of the process', () => {
    const placed = byTier(kinds, { host: 650, nvme: 0 }, restingOf(spec('cpu'), 2));
    expect(withOther(placed, 5000, true).device.other).toBe(5000 - sum(kinds));
    expect(withOther(placed, 5000, false).host.other).toBe(5000 - 650);
    expect(withOther(placed, 600, false)).toBe(placed);
  });
  it('have the name that the plan gives them', () => {
    const long = { optimizer: 'cpu', params: null, ratio: 1, path: null };
    expect([spec(), spec('nvme'), spec(long), spec({ ...long, params: 'none', ratio: 'auto' })].map(offloadLabel)).toEqual(['none', 'nvme', 'cpu', 'cpu, params none, ratio auto']);
  });
});

describe('capacity', () => {
  const node = (memory: number | null, slots: number, alive = true, each: number | null = null): ClusterNode => ({ id: '', address: '', alive, slots, memory_bytes: memory, accelerator: each === null ? null : 'L4', accelerator_memory_bytes: each });
  it('is that of the smallest slot that is there', () => {
    expect(slotMemory({ slot_kind: 'cpu', nodes: [node(800, 4), node(300, 2), node(10, 1, false), node(null, 8)] })).toBe(150);
    expect(slotMemory({ slot_kind: 'cpu', nodes: [node(null, 8)] })).toBeNull();
  });
  it("is an accelerator's own where slots are GPUs, whatever the spec asks for of the host", () => {
    const slot = slotMemory({ slot_kind: 'gpu', nodes: [node(800, 4, true, 70), node(300, 0), node(300, 8, true, 90)] });
    expect(slot).toBe(70);
    expect(capacityOf({ model: 'x', resources: { memory_gb: 1e-9 } }, slot, false)).toBe(70);
  });
  it('is no more than the spec asks for', () => {
    const asked = { model: 'x', resources: { memory_gb: 2 } };
    expect([capacityOf(asked, 3 * 2 ** 30), capacityOf(asked, null), capacityOf({ model: 'x' }, 5), capacityOf({ model: 'x' }, null)]).toEqual([2 ** 31, 2 ** 31, 5, null]);
  });
});
