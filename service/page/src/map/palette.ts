// Colours of classes, light and dark, that people of any colour vision tell apart (tests/service/test_map_palette.py):
// at least 0.09 apart in OKLab, seen with or without each kind of cone. What has no colour of its own is grey.

/** 0xRRGGBB, light and dark. */
export const KINDS: readonly [number, number][] = [
  [0x2a4594, 0x3c7ce7],
  [0xeb880b, 0xec9205],
  [0x077567, 0x1ac583],
  [0xca43a4, 0xbf96da],
  [0x0b84f2, 0x7ce1f9],
  [0xa4251a, 0xe23911],
  [0x937602, 0xccdd0c],
  [0x341e08, 0xffffd0],
];
export const OTHER: readonly [number, number] = [0xa0a5b0, 0x5c616c];
export const GROUND: readonly [number, number] = [0xffffff, 0x17181c];

/** From least to most, by lightness, so that order is seen without colour. */
export const STEPS: readonly [readonly number[], readonly number[]] = [
  [0xd3b04a, 0x4fa889, 0x2f6fa8, 0x2b1556],
  [0x554a9c, 0x2f83b8, 0x3fc79a, 0xf7ec7a],
];

/** Of `count` steps, evenly along the scale. */
export function steps(count: number, dark: boolean): number[] {
  const stops = STEPS[dark ? 1 : 0];
  return Array.from({ length: count }, (_, step) => {
    const along = ((stops.length - 1) * step) / Math.max(1, count - 1);
    const stop = Math.min(Math.floor(along), stops.length - 2);
    return mixed(stops[stop]!, stops[stop + 1]!, along - stop);
  });
}

/** `share` of the other, 0 to 1. */
export function mixed(one: number, other: number, share: number): number {
  const part = (shift: number) => {
    const from = (one >> shift) & 0xff;
    return Math.round(from + (((other >> shift) & 0xff) - from) * share) << shift;
  };
  return part(16) | part(8) | part(0);
}

export function css(color: number): string {
  return `#${color.toString(16).padStart(6, "0")}`;
}
