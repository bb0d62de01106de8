// Aliases: names that point at embedding sets. A change carries the version that was seen, so that nobody's is lost.

import { useState } from "preact/hooks";

import { changed, type Options, send } from "../api/client";
import { useMay } from "../api/own-key";
import { useAll } from "../api/query";
import type { Alias, Embedding } from "../api/types";
import { confirm, Dialog, useAction } from "../components/dialog";
import { FormField } from "../components/field";
import { Needs } from "../components/needs";
import { Empty, ProblemNote } from "../components/notes";
import { type Column, ListTable } from "../components/table";
import { tell } from "../components/toasts";
import { View } from "../components/view";
import { ago, setLabel, setName, shortId } from "../format";
import { isActive } from "../jobs/status";
import { link } from "../router";

const SETS = "/v1/embeddings?limit=200";

function address(name: string): string {
  return `/v1/aliases/${encodeURIComponent(name)}`;
}

/** Send a change of an alias; where it was based on another version than the present, that is asked for. */
async function change(alias: string, options: Options): Promise<void> {
  try {
    await send(address(alias), options);
  } finally {
    changed();
  }
}

/** How the API's `ETag` of an alias reads. */
function version(alias: Alias): Record<string, string> {
  return { "If-Match": `"${alias.version}"` };
}

function remove(alias: Alias): void {
  confirm({
    title: `Delete the alias ${alias.name}?`,
    text: "Requests by this name will be refused from then on. The embedding set it points at stays.",
    action: "Delete alias",
    run: async () => {
      await change(alias.name, { method: "DELETE", headers: version(alias) });
      tell(`Deleted the alias ${alias.name}`);
    },
  });
}

export function Aliases() {
  const [edited, setEdited] = useState<Alias | "new" | null>(null);
  const { data: sets } = useAll<Embedding>(SETS);
  const allowed = useMay("write");
  const named = new Map(sets?.items.map((set) => [set.id, setName(set)]));
  const columns: Column<Alias>[] = [
    { head: "Alias", cell: (alias) => <a href={link(["embeddings", alias.name])}>{alias.name}</a> },
    {
      head: "Points at",
      cell: (alias) => (
        <>
          {named.get(alias.embedding) && `${named.get(alias.embedding)} `}
          <a class="nowrap" href={link(["embeddings", alias.embedding])} title={alias.embedding}>
            {shortId(alias.embedding)}
          </a>
        </>
      ),
    },
    { head: "Version", cell: (alias) => alias.version, number: true, wide: true },
    { head: "Switched", cell: (alias) => ago(alias.updated_at), number: true, wide: true },
  ];
  const actions: Column<Alias> = {
    head: "Actions",
    mute: true,
    number: true,
    cell: (alias) => (
      <span class="row-actions">
        <button type="button" aria-label={`Switch ${alias.name}`} onClick={() => setEdited(alias)}>
          Switch
        </button>
        <button type="button" class="danger" aria-label={`Delete ${alias.name}`} onClick={() => remove(alias)}>
          Delete
        </button>
      </span>
    ),
  };
  return (
    <View
      title="Aliases"
      actions={
        <Needs scope="write">
          <button type="button" class="primary" onClick={() => setEdited("new")}>
            New alias
          </button>
        </Needs>
      }
    >
      <ListTable<Alias>
        caption="Aliases by name"
        path="/v1/aliases"
        every={10_000}
        columns={allowed ? [...columns, actions] : columns}
        rowKey={(alias) => alias.name}
        empty={
          <Empty title="No aliases yet">
            <p>
              An alias is a name for an embedding set that stays the same when a retrained set takes its place. Clients ask
              by the name, and are switched in one step.
            </p>
          </Empty>
        }
      />
      {edited && <Point alias={edited === "new" ? null : edited} onClose={() => setEdited(null)} />}
    </View>
  );
}

/** A set that its job still works on may have no index yet, and no report. */
function isWhole({ state, job_status: status }: Embedding): boolean {
  return state === "ready" && !(status && isActive({ status }));
}

function Point({ alias, onClose }: { alias: Alias | null; onClose: () => void }) {
  const [name, setName] = useState(alias?.name ?? "");
  const [embedding, setEmbedding] = useState(alias?.embedding ?? "");
  const { data: sets } = useAll<Embedding>(SETS);
  const offered = sets?.items.filter((set) => isWhole(set) || set.id === alias?.embedding);
  const { busy, problem, act } = useAction(async () => {
    const headers = alias ? version(alias) : {};
    await change(name, { method: "PUT", body: { embedding }, headers });
    tell(`${name} points at ${shortId(embedding)}`);
    onClose();
  });
  return (
    <Dialog title={alias ? `Switch ${alias.name}` : "New alias"} onClose={onClose}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          act();
        }}
      >
        {!alias && (
          <FormField name="Name" hint="Letters, digits, dots, dashes and underscores.">
            {(control) => (
              <input
                {...control}
                required
                pattern="[A-Za-z0-9][A-Za-z0-9._\-]*"
                maxLength={128}
                value={name}
                onInput={(event) => setName(event.currentTarget.value)}
              />
            )}
          </FormField>
        )}
        <FormField name="Embedding set">
          {(control) => (
            <select {...control} required value={embedding} onChange={(event) => setEmbedding(event.currentTarget.value)}>
              <option value="">Choose a set</option>
              {offered?.map((set) => (
                <option key={set.id} value={set.id}>
                  {setLabel(set)}
                </option>
              ))}
            </select>
          )}
        </FormField>
        <ProblemNote problem={problem} />
        <div class="actions">
          <button type="button" onClick={onClose}>
            Keep as it is
          </button>
          <button class="primary" aria-disabled={busy}>
            {alias ? "Switch" : "Make alias"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
