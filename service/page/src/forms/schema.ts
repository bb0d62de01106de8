// The API's own schema of a job request as fields of a form, and what is entered there as a request.

export interface Schema {
  $ref?: string;
  type?: string;
  title?: string;
  description?: string;
  const?: unknown;
  enum?: string[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  default?: unknown;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  patternProperties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  discriminator?: { mapping: Record<string, string> };
}

export interface Document {
  components: { schemas: Record<string, Schema> };
  paths: Record<string, Record<string, { requestBody?: { content: Record<string, { schema: Schema }> } }>>;
}

export type FieldKind = "integer" | "number" | "boolean" | "choice" | "text" | "list" | "pairs";

export interface Field {
  /** Where its value stands in the request: a JSON pointer. */
  pointer: string;
  name: string;
  kind: FieldKind;
  /** Of a list's entries. */
  entry: FieldKind;
  choices: string[];
  description: string;
  range: string;
  default: unknown;
  required: boolean;
}

export interface Group {
  pointer: string;
  name: string;
  description: string;
  fields: Field[];
  groups: Group[];
  /** It is null unless something of it is given. */
  optional: boolean;
}

/** Every kind of job and its group of fields. */
export function jobKinds(document: Document): Map<string, Group> {
  const body = document.paths["/v1/jobs"]!.post!.requestBody!.content["application/json"]!.schema;
  const request = resolve(document, body);
  return new Map(
    Object.entries(request.discriminator!.mapping).map(([kind, $ref]) => [kind, group(document, { $ref }, "", kind)]),
  );
}

/** What a graph may be registered by: a group of fields for each kind of source, and the fields of any. */
export function graphSources(document: Document): { sources: Map<string, Group>; root: Group } {
  const root = group(document, { $ref: "#/components/schemas/GraphRequest" }, "", "graph");
  const source = document.components.schemas.GraphRequest!.properties!.source!;
  const mapping = source.anyOf!.find(({ discriminator }) => discriminator)!.discriminator!.mapping;
  const sources = Object.entries(mapping).map(([kind, $ref]): [string, Group] => [kind, group(document, { $ref }, "/source", kind)]);
  return { sources: new Map(sources), root };
}

function resolve(document: Document, schema: Schema): Schema {
  if (!schema.$ref) return schema;
  const { $ref, ...own } = schema;
  return { ...document.components.schemas[$ref.split("/").at(-1)!]!, ...own };
}

function group(document: Document, schema: Schema, pointer: string, name: string, optional = false): Group {
  const { properties = {}, required = [], description = "" } = resolve(document, schema);
  const made: Group = { pointer, name, description: prose(description), fields: [], groups: [], optional };
  for (const [key, property] of Object.entries(properties)) {
    const place = `${pointer}/${key}`;
    // A union with one fixed word is told by it; of others, what is not null is what is entered.
    const branches = (property.anyOf ?? []).filter(({ type }) => type !== "null").map((one) => resolve(document, one));
    const { anyOf, ...own } = property;
    const shown: Schema = branches.length > 0 ? { ...branches[0], ...own } : resolve(document, property);
    if (shown.const !== undefined) continue;
    if (shown.properties) made.groups.push(group(document, shown, place, key, Boolean(anyOf)));
    else made.fields.push(field(shown, place, key, required.includes(key), document));
  }
  return made;
}

function field(schema: Schema, pointer: string, name: string, required: boolean, document: Document): Field {
  const entry = schema.items ? resolve(document, schema.items) : {};
  return {
    pointer,
    name,
    kind: kindOf(schema),
    entry: kindOf(entry),
    choices: schema.enum ?? [],
    description: prose(schema.description ?? ""),
    range: range(schema),
    default: schema.default,
    required,
  };
}

function kindOf(schema: Schema): FieldKind {
  if (schema.enum) return "choice";
  if (schema.type === "integer" || schema.type === "number" || schema.type === "boolean") return schema.type;
  if (schema.type === "array") return "list";
  return schema.type === "object" ? "pairs" : "text";
}

/** The documents' descriptions are in Markdown; of it they use backquotes. */
function prose(text: string): string {
  return text.replaceAll("``", "").replaceAll("`", "");
}

function range({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Schema): string {
  const low = minimum ?? exclusiveMinimum;
  const high = maximum ?? exclusiveMaximum;
  if (low !== undefined && high !== undefined && high < 1e9) return `${low} to ${high}`;
  if (low !== undefined) return exclusiveMinimum === undefined ? `${low} or more` : `more than ${low}`;
  return "";
}

export type Entered = Record<string, string>;

export function allFields(root: Group): Field[] {
  return [...root.fields, ...root.groups.flatMap(allFields)];
}

/** The request: what was entered, and nothing of what was not. What is no number is sent as it is, to be refused. */
export function request(root: Group, entered: Entered): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const one of allFields(root)) {
    const text = entered[one.pointer]?.trim();
    if (text) put(body, one.pointer, value(one, text));
  }
  for (const pointer of wantedGroups(root, entered)) if (at(body, pointer) === undefined) put(body, pointer, {});
  return body;
}

/** Groups that are asked for by their own mark, with all of their defaults. */
function wantedGroups(root: Group, entered: Entered): string[] {
  const mine = root.optional && entered[root.pointer] ? [root.pointer] : [];
  return [...mine, ...root.groups.flatMap((one) => wantedGroups(one, entered))];
}

function value({ kind, entry }: Field, text: string): unknown {
  if (kind === "list") return text.split(",").map((part) => scalar(entry, part.trim()));
  if (kind !== "pairs") return scalar(kind, text);
  return Object.fromEntries(
    text
      .split("\n")
      .filter((line) => line.trim())
      .map((line) => {
        const [name = "", ...rest] = line.split("=");
        return [name.trim(), rest.join("=").trim()];
      }),
  );
}

function scalar(kind: FieldKind, text: string): unknown {
  if (kind === "boolean") return text === "true";
  if (kind !== "integer" && kind !== "number") return text;
  const parsed = Number(text);
  return Number.isNaN(parsed) ? text : parsed;
}

function put(body: Record<string, unknown>, pointer: string, given: unknown): void {
  const steps = pointer.slice(1).split("/");
  const last = steps.pop()!;
  let place = body;
  for (const step of steps) place = (place[step] ??= {}) as Record<string, unknown>;
  place[last] = given;
}

/** What stands at a pointer in a document. */
export function at(document: unknown, pointer: string): unknown {
  if (pointer === "") return document;
  return pointer
    .slice(1)
    .split("/")
    .reduce<unknown>((place, step) => (place as Record<string, unknown> | null | undefined)?.[step], document);
}

/** A value as it is entered. */
export function written(given: unknown): string {
  if (given === null || given === undefined) return "";
  if (Array.isArray(given)) return given.join(", ");
  if (typeof given !== "object") return String(given);
  return Object.entries(given)
    .map(([name, one]) => `${name}=${one}`)
    .join("\n");
}
