// Which part of the plane is seen. Up is up: y grows to the top of the screen.

export interface Camera {
  /** The point of the plane in the middle of the view. */
  readonly x: number;
  readonly y: number;
  /** Pixels a unit of the plane. */
  readonly scale: number;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

const MARGIN = 0.92;

/** All of the points, with a little room around. */
export function fitted(x: ArrayLike<number>, y: ArrayLike<number>, size: Size): Camera {
  const [left, right] = extent(x);
  const [bottom, top] = extent(y);
  const apart = Math.max(right - left, top - bottom) || 1;
  const scale = MARGIN * Math.min(size.width / (right - left || apart), size.height / (top - bottom || apart));
  return { x: (left + right) / 2, y: (bottom + top) / 2, scale: scale || 1 };
}

function extent(values: ArrayLike<number>): [number, number] {
  let least = Infinity;
  let most = -Infinity;
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return values.length === 0 ? [0, 0] : [least, most];
}

export function toScreen(camera: Camera, size: Size, x: number, y: number): [number, number] {
  return [size.width / 2 + (x - camera.x) * camera.scale, size.height / 2 - (y - camera.y) * camera.scale];
}

export function toPlane(camera: Camera, size: Size, left: number, top: number): [number, number] {
  return [camera.x + (left - size.width / 2) / camera.scale, camera.y - (top - size.height / 2) / camera.scale];
}

/** Moved by so many pixels of the screen. */
export function panned(camera: Camera, right: number, down: number): Camera {
  return { ...camera, x: camera.x - right / camera.scale, y: camera.y + down / camera.scale };
}

/** Zoomed so that what is at `left`, `top` stays there; `home` bounds how far out and how far in. */
export function zoomed(camera: Camera, home: Camera, size: Size, factor: number, left: number, top: number): Camera {
  const scale = bounded(camera.scale * factor, home);
  const [x, y] = toPlane(camera, size, left, top);
  return { x: x - (left - size.width / 2) / scale, y: y + (top - size.height / 2) / scale, scale };
}

/** Neither so far out that all is a dot nor so far in that nothing is seen. */
export function bounded(scale: number, home: Camera): number {
  return Math.min(2000 * home.scale, Math.max(home.scale / 2, scale));
}
