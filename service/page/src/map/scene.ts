// The points as they are seen through a camera that moves. While it moves, no more of them are drawn than there is time
// for; where it comes to rest, all are.

import type { Camera, Size } from "./camera";
import { mixed } from "./palette";
import { HIDDEN, Splats } from "./splats";

// Drawing may take so long of a frame, and a frame of a camera that moves so long in all: 30 a second, whatever the
// browser and the machine do besides.
const DRAWING_MS = 14;
const FRAME_MS = 30;
const FEWEST = 4000;
const REST_MS = 140;
const FADE = 0.72;

/** When the frame began, how many points it has, and the milliseconds that they took. */
interface Drawing {
  at: number;
  drawn: number;
  drawing: number;
}

export class Scene {
  /** In pixels of the screen, whatever the canvas has. */
  camera: Camera = { x: 0, y: 0, scale: 1 };
  size: Size = { width: 0, height: 0 };
  private readonly splats: Splats;
  private home = 1;
  private ratio = 1;
  private limit: number;
  private moving = false;
  private changed = false;
  /** What the last frame in motion drew, if it drew. */
  private last: Drawing | null = null;
  private frame = 0;
  private rest = 0;
  private colors: Int32Array<ArrayBufferLike> = new Int32Array(0);
  private ground = 0;

  /** `onDrawn` is told after every drawing, how many points it has. */
  constructor(
    private readonly canvas: HTMLCanvasElement,
    x: Float32Array,
    y: Float32Array,
    private readonly onDrawn: (points: number) => void,
  ) {
    this.splats = new Splats(canvas, x, y);
    this.limit = this.splats.count;
  }

  get count(): number {
    return this.splats.count;
  }

  resize(size: Size, ratio: number): void {
    this.size = size;
    this.ratio = ratio;
    this.canvas.width = Math.round(size.width * ratio);
    this.canvas.height = Math.round(size.height * ratio);
    this.still();
  }

  /** `home`: the camera that shows all, by which discs are sized. */
  show(camera: Camera, home: Camera): void {
    this.camera = camera;
    this.home = home.scale;
    this.still();
  }

  setClasses(codes: Uint16Array): void {
    this.splats.setClasses(codes);
  }

  /** Colours by class, null where it is hidden; `faded` sets them back behind what is marked. */
  setColors(colors: readonly (number | null)[], ground: number, faded: boolean): void {
    const seen = (color: number) => (faded ? mixed(color, ground, FADE) : color);
    this.colors = Int32Array.from(colors, (color) => (color === null ? HIDDEN : seen(color)));
    this.ground = ground;
    this.still();
  }

  move(camera: Camera): void {
    this.camera = camera;
    this.changed = true;
    clearTimeout(this.rest);
    this.rest = window.setTimeout(() => this.still(), REST_MS);
    if (this.moving) return;
    this.moving = true;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(this.tick);
  }

  end(): void {
    clearTimeout(this.rest);
    cancelAnimationFrame(this.frame);
  }

  /** All points, at the next frame. */
  private still(): void {
    this.moving = false;
    this.last = null;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw(this.count));
  }

  /** Every frame from the first move to the rest, also those for which there was no new move: what a drawing took of
      the browser is how long after it the next frame comes, however seldom moves do. */
  private readonly tick = (now: number): void => {
    if (this.last !== null) this.pace(this.last, now - this.last.at);
    this.last = null;
    if (this.changed) {
      const [drawn, began] = [Math.min(this.limit, this.count), performance.now()];
      this.draw(drawn);
      this.last = { at: now, drawn, drawing: performance.now() - began };
      this.changed = false;
    }
    this.frame = requestAnimationFrame(this.tick);
  };

  private draw(points: number): void {
    const look = { colors: this.colors, background: this.ground, radius: this.radius() };
    this.splats.draw({ ...this.camera, scale: this.camera.scale * this.ratio }, look, points);
    this.onDrawn(points);
  }

  /** Halfway to as many points as there was time for, by a drawing and the milliseconds to the frame after it. */
  private pace({ drawn, drawing }: Drawing, frame: number): void {
    const fitting = drawn * Math.min(DRAWING_MS / Math.max(0.1, drawing), FRAME_MS / Math.max(0.1, frame));
    this.limit = Math.round(Math.min(this.count, Math.max(FEWEST, (drawn + Math.min(this.count, fitting)) / 2)));
  }

  /** Larger where points are few, and a little the nearer they are looked at. */
  private radius(): number {
    const few = Math.min(3.4, Math.max(1.1, 160 / Math.sqrt(this.count)));
    const near = Math.min(2, (this.camera.scale / this.home) ** 0.25);
    return Math.round(4 * this.ratio * few * Math.max(0.8, near)) / 4;
  }
}
