// Points drawn as small discs into an image, by the processor: no WebGL, which browsers on virtual machines and servers
// often lack and which in software is slower (docs/decisions.md, 2026-11-30).

import type { Camera } from "./camera";

export interface Look {
  /** By class, 0xRRGGBB; −1 where the class is hidden. */
  readonly colors: Int32Array;
  readonly background: number;
  /** Of a disc, in pixels of the canvas. */
  readonly radius: number;
}

// A disc's middle is placed to a quarter of a pixel, so that slow movement does not tremble.
const PLACES = 4;
const OPACITY = 0.85;
const OPAQUE = 0xff000000;

export class Splats {
  private readonly context: CanvasRenderingContext2D;
  private readonly order: Uint32Array;
  private readonly x: Float32Array;
  private readonly y: Float32Array;
  private readonly codes: Uint16Array;
  private image: ImageData | null = null;
  private pixels = new Int32Array(0);
  private discs: Disc[] = [];
  private radius = 0;

  /**
   * The points are kept in an order drawn by chance, so that no class lies over another throughout and the first n of
   * them are a fair sample.
   */
  constructor(private readonly canvas: HTMLCanvasElement, x: Float32Array, y: Float32Array) {
    const context = canvas.getContext("2d", { alpha: false });
    if (context === null) throw new Error("the browser gives no 2-D canvas");
    this.context = context;
    this.order = shuffled(x.length);
    this.x = Float32Array.from(this.order, (point) => x[point]!);
    this.y = Float32Array.from(this.order, (point) => y[point]!);
    this.codes = new Uint16Array(x.length);
  }

  get count(): number {
    return this.x.length;
  }

  /** `codes`: the class of each point. */
  setClasses(codes: Uint16Array): void {
    this.order.forEach((point, place) => {
      this.codes[place] = codes[point]!;
    });
  }

  /** Draw at most `limit` of the points. */
  draw(camera: Camera, look: Look, limit = this.count): void {
    const { width, height } = this.canvas;
    if (width === 0 || height === 0) return;
    // Discs that are seen in part are painted whole, into a margin that is not shown.
    const margin = Math.ceil(look.radius) + 2;
    const stride = width + 2 * margin;
    if (this.image?.width !== stride || this.image.height !== height + 2 * margin || this.radius !== look.radius) {
      this.image = new ImageData(stride, height + 2 * margin);
      this.pixels = new Int32Array(this.image.data.buffer);
      this.discs = discs(look.radius, stride);
      this.radius = look.radius;
    }
    this.pixels.fill(OPAQUE | pixel(look.background));
    this.paint(camera, look.colors.map(pixel), margin, stride, Math.min(limit, this.count));
    this.context.putImageData(this.image, -margin, -margin, margin, margin, width, height);
  }

  private paint(camera: Camera, colors: Int32Array, margin: number, stride: number, count: number): void {
    const { x, y, codes, pixels, discs } = this;
    const { width, height } = this.canvas;
    const { scale } = camera;
    const left = margin + width / 2 - camera.x * scale;
    const top = margin + height / 2 + camera.y * scale;
    const right = margin + width + margin - 2;
    const bottom = margin + height + margin - 2;
    for (let point = 0; point < count; point++) {
      const across = left + x[point]! * scale;
      const down = top - y[point]! * scale;
      if (!(across > 1 && across < right && down > 1 && down < bottom)) continue;
      const color = colors[codes[point]!]!;
      if (color === HIDDEN) continue;
      const column = across | 0;
      const row = down | 0;
      const place = (((down - row) * PLACES) | 0) * PLACES + (((across - column) * PLACES) | 0);
      blend(pixels, row * stride + column, color, discs[place]!);
    }
  }
}

interface Disc {
  /** From the middle's pixel, one after the other, those wholly covered first. */
  readonly offsets: Int32Array;
  /** 0 to 256. */
  readonly covered: Int32Array;
}

function blend(pixels: Int32Array, middle: number, color: number, disc: Disc): void {
  const { offsets, covered } = disc;
  const odd = color & 0xff00ff;
  const even = color & 0x00ff00;
  for (let i = 0; i < offsets.length; i++) {
    const at = middle + offsets[i]!;
    const share = covered[i]!;
    const rest = 256 - share;
    const below = pixels[at]!;
    const blue = ((Math.imul(below & 0xff00ff, rest) + Math.imul(odd, share)) >>> 8) & 0xff00ff;
    const green = ((Math.imul(below & 0x00ff00, rest) + Math.imul(even, share)) >>> 8) & 0x00ff00;
    pixels[at] = OPAQUE | blue | green;
  }
}

/** A disc for each place of its middle within a pixel. */
function discs(radius: number, stride: number): Disc[] {
  const reach = Math.ceil(radius) + 1;
  return Array.from({ length: PLACES * PLACES }, (_, place) => {
    const middleX = ((place % PLACES) + 0.5) / PLACES;
    const middleY = (Math.floor(place / PLACES) + 0.5) / PLACES;
    const offsets: number[] = [];
    const covered: number[] = [];
    for (let dy = -reach; dy <= reach; dy++) {
      for (let dx = -reach; dx <= reach; dx++) {
        const distance = Math.hypot(dx + 0.5 - middleX, dy + 0.5 - middleY);
        const share = Math.round(256 * OPACITY * Math.min(1, Math.max(0, radius + 0.5 - distance)));
        if (share < 8) continue;
        offsets.push(dy * stride + dx);
        covered.push(share);
      }
    }
    return { offsets: Int32Array.from(offsets), covered: Int32Array.from(covered) };
  });
}

/** What `Look.colors` has for a hidden class. */
export const HIDDEN = -1;

/** 0xRRGGBB as a pixel lies in memory (little-endian: 0xAABBGGRR). */
function pixel(color: number): number {
  if (color === HIDDEN) return HIDDEN;
  return ((color & 0xff) << 16) | (color & 0x00ff00) | (color >> 16);
}

/** 0 to count − 1 in an order that is the same every time (mulberry32). */
function shuffled(count: number): Uint32Array {
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  let state = 1;
  for (let last = count - 1; last > 0; last--) {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    const other = ((mixed ^ (mixed >>> 14)) >>> 0) % (last + 1);
    const kept = order[last]!;
    order[last] = order[other]!;
    order[other] = kept;
  }
  return order;
}
