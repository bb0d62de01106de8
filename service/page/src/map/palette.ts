// Colours of classes, light and dark, that people of any colour vision tell apart (tests/service/test_map_palette.py):
// at least 0.09 apart in OKLab, seen with or without each kind of cone. What has no colour of its own is grey.

/** 0xRRGGBB, light and dark. */
export const KINDS: readonly [number, number][] = [
  [0x0205e7, 0x3564ff],
  [0x9f0000, 0xe10845],
  [0x1a9817, 0x2bde8d],
  [0xb651b5, 0xe6b60c],
  [0x2599f3, 0xb682ee],
  [0x2e2654, 0x4dfffd],
  [0xff5266, 0xe47a53],
  [0x055345, 0x1a7502],
  [0x734d82, 0xb412bd],
  [0x7950ff, 0xabbcdc],
  [0x5e0509, 0xddfe3d],
  [0x5c07a6, 0x05aa9f],
];
export const OTHER: readonly [number, number] = [0x9095a0, 0x6b707b];
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
