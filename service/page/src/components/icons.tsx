// Line icons, 16 by 16; always beside words or inside something that has a name.

const PATHS = {
  overview: "M2 9h3l2-6 3 10 2-4h2",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  graphs: "M4 4.5 12 4M4 4.5 7 12M12 4 7 12M4 6a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM12 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM7 13.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z",
  embeddings: "M3 3v10h10M6 10h.01M8 7h.01M11 8h.01M10 4h.01M7 4h.01M12 11h.01",
  aliases: "M8.5 2.5h5v5L7 14 2 9ZM11 5h.01",
  keys: "M9.5 6.5 14 2M12 4l1.5 1.5M6.5 13a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7Z",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7Z",
  system: "M2 3h12v8H2ZM6 14h4",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5 6.5 12 13 4.5",
  info: "M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM8 7.5v3.5M8 5h.01",
  alert: "M8 2 15 14H1ZM8 6.5v3M8 12h.01",
  plus: "M8 3v10M3 8h10",
  copy: "M5.5 5.5h8v8h-8ZM10.5 5.5v-3h-8v8h3",
  chevron: "M6 4l4 4-4 4",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM11 11l3 3",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
