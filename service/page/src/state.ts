// A value that components follow: set it anywhere, and those that use it are drawn again.

import { useEffect, useState } from "preact/hooks";

export class State<Value> {
  private followers = new Set<(value: Value) => void>();

  constructor(private held: Value) {}

  get value(): Value {
    return this.held;
  }

  set(value: Value): void {
    if (Object.is(value, this.held)) return;
    this.held = value;
    for (const follow of [...this.followers]) follow(value);
  }

  follow(follower: (value: Value) => void): () => void {
    this.followers.add(follower);
    return () => this.followers.delete(follower);
  }
}

export function useValue<Value>(state: State<Value>): Value {
  const [value, setValue] = useState(state.value);
  useEffect(() => {
    setValue(() => state.value);
    return state.follow((next) => setValue(() => next));
  }, [state]);
  return value;
}
