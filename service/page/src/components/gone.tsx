// What was looked at and is there no longer, or never was.

import { View } from "./view";
import { Empty } from "./notes";

interface GoneProps {
  what: "job" | "graph" | "embedding set";
  /** Its id or alias. */
  name: string;
  /** The list that it is none of. */
  back: [string, string];
}

export function Gone({ what, name, back }: GoneProps) {
  return (
    <View title={name} back={back}>
      <div role="alert">
        <Empty title={`This ${what} is gone`}>
          <p>
            It was deleted, or there never was one. <a href={back[1]}>{`Go back to ${back[0].toLowerCase()}`}</a>
          </p>
        </Empty>
      </div>
    </View>
  );
}
