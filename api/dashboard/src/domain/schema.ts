/** One field of the spec as its schema says it: what may be chosen or typed, within what bounds, and what stands there otherwise. */

export type SchemaNode = Readonly<Record<string, unknown>>;
export type Schemas = Readonly<Record<string, unknown>>;

export interface SpecField {
  path: string;
  kind: 'choice' | 'integer' | 'number' | 'boolean' | 'text';
  choices: readonly (string | number)[];
  min: number | null;
  max: number | null;
  fallback: unknown;
}

const isNode = (value: unknown): value is SchemaNode => typeof value === 'object' && value !== null && !Array.isArray(value);

function followed(node: unknown, schemas: Schemas): SchemaNode {
  if (!isNode(node)) return {};
  const ref = node['$ref'];
  if (typeof ref !== 'string') return node;
  const target = schemas[ref.slice(ref.lastIndexOf('/') + 1)];
  return isNode(target) ? { ...target, ...('default' in node ? { default: node['default'] } : {}) } : {};
}

/** The node itself, or what it may be instead. */
function alternatives(node: SchemaNode, schemas: Schemas): SchemaNode[] {
  const several = [node['anyOf'], node['oneOf']].find(Array.isArray) as unknown[] | undefined;
  return several ? several.map((one) => followed(one, schemas)) : [node];
}

function child(node: SchemaNode, name: string, schemas: Schemas): SchemaNode | null {
  for (const one of alternatives(node, schemas)) {
    const properties = one['properties'];
    if (isNode(properties) && name in properties) return followed(properties[name], schemas);
  }
  return null;
}

const asNumber = (value: unknown): number | null => (typeof value === 'number' && Math.abs(value) < 1e15 ? value : null);

/** `training.optimizer.lr` in the schema called `root`; null where the service has no such field. */
export function fieldAt(path: string, root: string, schemas: Schemas): SpecField | null {
  let node: SchemaNode | null = followed(schemas[root], schemas);
  for (const name of path.split('.')) {
    node = node && child(node, name, schemas);
  }
  if (!node) return null;
  const ways = alternatives(node, schemas);
  const fallback = node['default'];
  // The first list is the field's own; later ones are other names for the same.
  const choices = ways.map((way) => way['enum']).find(Array.isArray) as (string | number)[] | undefined;
  const base = { path, choices: choices ?? [], min: null, max: null, fallback };
  if (choices) return { ...base, kind: 'choice' };
  // A number that may also be said as a word (`auto`) is typed as either.
  const typed = [/^(integer|number)$/, /^(boolean|string)$/].map((type) => ways.find((way) => type.test(String(way['type'])))).find(Boolean) ?? {};
  const kind = typed['type'] === 'string' ? 'text' : (typed['type'] as SpecField['kind'] | undefined);
  return { ...base, kind: kind ?? 'text', min: asNumber(typed['minimum']), max: asNumber(typed['maximum']) };
}

/** Objects of several kinds, which are written as JSON. */
const WRITTEN: ReadonlySet<string> = new Set(['model', 'data', 'from', 'ds_config', 'fsdp_config', 'auto', 'name']);
const DEEPEST = 4;

/** Paths of everything that can be chosen or typed in one field, in the order of the schema. */
export function pathsOf(root: string, schemas: Schemas): string[] {
  return within(followed(schemas[root], schemas), '', schemas);
}

function within(node: SchemaNode, prefix: string, schemas: Schemas): string[] {
  const properties = node['properties'];
  if (!isNode(properties) || prefix.split('.').length > DEEPEST) return [];
  return Object.entries(properties).flatMap(([name, inner]) => {
    if (prefix === '' && WRITTEN.has(name)) return [];
    const path = `${prefix}${name}`;
    const ways = alternatives(followed(inner, schemas), schemas);
    const object = ways.find((way) => isNode(way['properties']));
    if (object) return within(object, `${path}.`, schemas);
    return ways.some((way) => Array.isArray(way['enum']) || /^(integer|number|boolean|string)$/.test(String(way['type']))) ? [path] : [];
  });
}
