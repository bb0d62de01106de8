// Which point is nearest to a place: points are sorted into the cells of a grid, and only cells within reach are searched.

export class Nearest {
  private readonly left: number;
  private readonly bottom: number;
  private readonly cell: number;
  private readonly columns: number;
  private readonly rows: number;
  private readonly starts: Uint32Array;
  private readonly points: Uint32Array;

  constructor(
    private readonly x: Float32Array,
    private readonly y: Float32Array,
  ) {
    const count = x.length;
    let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let point = 0; point < count; point++) {
      left = Math.min(left, x[point]!);
      right = Math.max(right, x[point]!);
      bottom = Math.min(bottom, y[point]!);
      top = Math.max(top, y[point]!);
    }
    this.left = left;
    this.bottom = bottom;
    // About two points a cell, if they were spread evenly.
    const side = Math.max(1, Math.ceil(Math.sqrt(count / 2)));
    this.cell = Math.max(right - left, top - bottom) / side || 1;
    this.columns = this.column(right) + 1 || 1;
    this.rows = this.row(top) + 1 || 1;
    this.starts = new Uint32Array(this.columns * this.rows + 1);
    this.points = new Uint32Array(count);
    const cells = Uint32Array.from(x, (_, point) => this.row(y[point]!) * this.columns + this.column(x[point]!));
    for (const cell of cells) this.starts[cell + 1]! += 1;
    for (let cell = 0; cell < this.columns * this.rows; cell++) this.starts[cell + 1]! += this.starts[cell]!;
    const next = this.starts.slice();
    cells.forEach((cell, point) => {
      this.points[next[cell]!++] = point;
    });
  }

  /** The nearest of the points that `counts`, at most `reach` away; null if there is none. */
  at(x: number, y: number, reach: number, counts: (point: number) => boolean): number | null {
    let best: number | null = null;
    let least = reach * reach;
    const firstColumn = Math.max(0, this.column(x - reach));
    const lastColumn = Math.min(this.columns - 1, this.column(x + reach));
    const lastRow = Math.min(this.rows - 1, this.row(y + reach));
    for (let row = Math.max(0, this.row(y - reach)); row <= lastRow; row++) {
      for (let column = firstColumn; column <= lastColumn; column++) {
        const cell = row * this.columns + column;
        for (let place = this.starts[cell]!; place < this.starts[cell + 1]!; place++) {
          const point = this.points[place]!;
          const distance = (this.x[point]! - x) ** 2 + (this.y[point]! - y) ** 2;
          if (distance <= least && counts(point)) [best, least] = [point, distance];
        }
      }
    }
    return best;
  }

  private column(x: number): number {
    return Math.floor((x - this.left) / this.cell);
  }

  private row(y: number): number {
    return Math.floor((y - this.bottom) / this.cell);
  }
}
