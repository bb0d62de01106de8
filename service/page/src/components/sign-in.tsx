// The key, when the server asks for one.

import { useState } from "preact/hooks";

import { keyWanted, useKey } from "../api/client";
import { useValue } from "../state";
import { Dialog } from "./dialog";
import { FormField } from "./field";
import { sentence } from "./notes";

export function SignIn() {
  const wanted = useValue(keyWanted);
  const [key, setKey] = useState("");
  if (wanted === null) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    useKey(key.trim());
    setKey("");
  };
  return (
    <Dialog title="API key" fixed onClose={() => {}}>
      <form class="form" onSubmit={submit}>
        <p role="alert">{sentence(wanted)}</p>
        <FormField
          name="Key"
          hint={
            <>
              It stays in this tab alone. Its operator makes one with <code>rgrl keys create NAME --scope admin</code>.
            </>
          }
        >
          {(control) => (
            <input
              {...control}
              type="password"
              autocomplete="off"
              required
              value={key}
              onInput={(event) => setKey(event.currentTarget.value)}
            />
          )}
        </FormField>
        <div class="actions">
          <button class="primary">Use key</button>
        </div>
      </form>
    </Dialog>
  );
}
