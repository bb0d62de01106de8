// What only some keys can do: it stands there for those, and for the others why it does not.

import type { ComponentChildren } from "preact";

import { useMay, useOwnKey } from "../api/own-key";
import type { Scope } from "../api/types";
import { Clip } from "./clip";
import { Empty } from "./notes";
import { View } from "./view";

interface NeedsProps {
  scope: Scope;
  children: ComponentChildren;
}

/** Buttons that write, or a line that says why there are none. */
export function Needs({ scope, children }: NeedsProps) {
  if (useMay(scope)) return <>{children}</>;
  return (
    <span class="soft needs">
      <Why scope={scope} />
    </span>
  );
}

/** A whole view that is of no use to the key. */
export function NotAllowed({ title, back, scope }: { title: string; back: [string, string]; scope: Scope }) {
  return (
    <View title={title} back={back}>
      <Empty title="Your key cannot do this">
        <p>
          <Why scope={scope} />
        </p>
      </Empty>
    </View>
  );
}

const WANTED: Record<Scope, string> = {
  read: "looking something up needs scope read",
  write: "whatever changes something needs scope write",
  admin: "keys are listed, made and revoked by keys of scope admin",
};

export function Why({ scope }: { scope: Scope }) {
  const key = useOwnKey();
  return (
    <>
      Your key{" "}
      <strong>
        <Clip text={key?.name ?? ""} />
      </strong>{" "}
      has scope {key?.scopes.at(-1)}; {WANTED[scope]}.
    </>
  );
}
