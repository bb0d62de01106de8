// API keys: made and revoked by a key of scope admin; a secret is shown once.

import { useState } from "preact/hooks";

import { changed, forgetKey, hasKey, post, Problem, send, useKey } from "../api/client";
import { useMay } from "../api/own-key";
import { useQuery } from "../api/query";
import type { ApiKey, NewKey } from "../api/types";
import { confirm, Dialog, useAction } from "../components/dialog";
import { FormField } from "../components/field";
import { Why } from "../components/needs";
import { Empty, Loading, Note, ProblemNote } from "../components/notes";
import { type Column, Table } from "../components/table";
import { tell } from "../components/toasts";
import { Copy, View } from "../components/view";
import { ago } from "../format";

const SCOPES: [ApiKey["scopes"][number], string][] = [
  ["read", "Look up, search, list"],
  ["write", "Also register graphs, submit and cancel jobs, switch aliases"],
  ["admin", "Also make and revoke keys"],
];

/** The last live key is this page's too: without it the server either answers whoever reaches it, or no one. */
async function goOnWithout(name: string): Promise<void> {
  forgetKey();
  try {
    await send("/v1/keys");
    tell(`Revoked the key ${name}; the server answers without a key again`);
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401) throw error;
    tell(`Revoked the key ${name}; the server refuses every request until rgrl keys create makes another`);
  }
}

const LAST =
  "No key is left then: a server that listens on its own machine alone (or with --insecure) answers whoever reaches it, " +
  "another refuses every request. It cannot be brought back.";

function revoke(key: ApiKey, last: boolean): void {
  confirm({
    title: `Revoke the key ${key.name}?`,
    text: last ? LAST : "Who sends it is refused from then on. It cannot be brought back.",
    action: "Revoke key",
    run: async () => {
      await send(`/v1/keys/${encodeURIComponent(key.id)}`, { method: "DELETE" });
      if (last) return goOnWithout(key.name);
      changed();
      tell(`Revoked the key ${key.name}`);
    },
  });
}

const columns = (live: number): Column<ApiKey>[] => [
  { head: "Name", cell: (key) => key.name },
  { head: "Scopes", cell: (key) => key.scopes.join(", ") },
  { head: "Made", cell: (key) => ago(key.created_at), number: true, wide: true },
  { head: "State", cell: (key) => (key.revoked_at ? `revoked ${ago(key.revoked_at)}` : "live") },
  {
    head: "Actions",
    mute: true,
    number: true,
    cell: (key) =>
      !key.revoked_at && (
        <button type="button" class="danger" aria-label={`Revoke ${key.name}`} onClick={() => revoke(key, live === 1)}>
          Revoke
        </button>
      ),
  },
];

export function Keys() {
  const [making, setMaking] = useState(false);
  const allowed = useMay("admin");
  const { data, problem } = useQuery<{ items: ApiKey[] }>(allowed ? "/v1/keys" : null);
  const live = data?.items.filter((key) => !key.revoked_at).length ?? 0;
  return (
    <View
      title="API keys"
      actions={
        <>
          {hasKey() && (
            <button type="button" onClick={forgetKey}>
              Forget my key
            </button>
          )}
          {allowed && (
            <button type="button" class="primary" onClick={() => setMaking(true)}>
              New key
            </button>
          )}
        </>
      }
    >
      {!allowed && (
        <Empty title="Your key does not manage keys">
          <p>
            <Why scope="admin" />
          </p>
        </Empty>
      )}
      <ProblemNote problem={problem} />
      {allowed && !data && !problem && <Loading />}
      {data && data.items.length === 0 && (
        <Empty title="No keys: this server answers its own machine alone">
          <p>The first key shuts it to requests without one, this page's too; make it of scope admin to be able to make more.</p>
        </Empty>
      )}
      {data && data.items.length > 0 && live === 0 && !problem && (
        <Note kind="warn">No key is live: the server answers whoever reaches it, without a key. The next one made shuts it.</Note>
      )}
      {data && data.items.length > 0 && (
        <Table caption="API keys, oldest first" columns={columns(live)} rows={data.items} rowKey={(key) => key.id} />
      )}
      {making && <Make first={data !== undefined && live === 0} onClose={() => setMaking(false)} />}
    </View>
  );
}

function Make({ first, onClose }: { first: boolean; onClose: () => void }) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<ApiKey["scopes"][number]>(first ? "admin" : "read");
  const [made, setMade] = useState<NewKey | null>(null);
  const { busy, problem, act } = useAction(async () => {
    const key = await post<NewKey>("/v1/keys", { name, scopes: [scope] });
    setMade(key);
    // From now on the server asks for a key: this page goes on with the one it has just been given.
    if (!hasKey()) useKey(key.token);
    else changed();
  });
  if (made) {
    return (
      <Dialog title={`The key ${made.name}`} onClose={onClose}>
        <Note kind="warn">This is the only time that the secret is shown. Keep it where secrets are kept.</Note>
        <p class="secret">
          <Copy text={made.token} short={made.token} plain />
        </p>
        <div class="actions">
          <button type="button" class="primary" onClick={onClose}>
            Done
          </button>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="New key" onClose={onClose}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          act();
        }}
      >
        <FormField name="Name" hint="Who or what it is for.">
          {(control) => (
            <input
              {...control}
              required
              maxLength={200}
              value={name}
              onInput={(event) => setName(event.currentTarget.value)}
            />
          )}
        </FormField>
        <fieldset class="choices">
          <legend>Scope</legend>
          {SCOPES.map(([value, what]) => (
            <label key={value}>
              <input type="radio" name="scope" value={value} checked={scope === value} onChange={() => setScope(value)} />
              <span>
                {value}
                <small>{what}</small>
              </span>
            </label>
          ))}
        </fieldset>
        <ProblemNote problem={problem} />
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button class="primary" aria-disabled={busy}>
            Make key
          </button>
        </div>
      </form>
    </Dialog>
  );
}
