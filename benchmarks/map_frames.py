"""Frames a second of the page's map while it is panned and zoomed, beside regl-scatterplot and deck.gl.

Every renderer draws the same points (eight clusters, 1,280 by 800 pixels) in headless Chromium without a GPU, with the
arguments that the tests of the page give it, and follows the same camera; what counts is how often it has drawn. "Ours"
is what the page does: every point at rest, and no more than there is time for while the camera moves. "Ours, all" draws
every point of every frame, as its peers do. The peers and the bundler come from the npm registry into a temporary
folder; the page's sources are bundled as they are.

    python benchmarks/map_frames.py [--quick] [--points 100000 200000] [--rounds 3]

The last line is JSON: the slower of panning and zooming, at the fewest points asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

MAP = Path(__file__).parents[1] / "service" / "page" / "src" / "map"
PACKAGES = ["esbuild@0.28.2", "regl-scatterplot@1.16.0", "@deck.gl/core@9.4.0", "@deck.gl/layers@9.4.0"]
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDTH, HEIGHT, RADIUS = 1280, 800, 1.5
MOTIONS = ("pan", "zoom")

# Each makes `window.make(parent, x, y, codes, colors)`, of whose answer `look(x, y, zoom)` moves the camera, at most
# once a frame of the browser, and `drawn()` counts the drawings. At zoom 1 the window's height shows −1 to 1.
ENTRIES = {
    "ours": """
        import { Scene } from "MAP/scene";
        window.make = async (parent, x, y, codes, colors) => {
          const canvas = document.createElement("canvas");
          parent.append(canvas);
          let drawn = 0, points = [];
          const scene = new Scene(canvas, x, y, (count) => { drawn++; points.push(count); });
          scene.setClasses(codes);
          scene.setColors(colors, 0xffffff, false);
          scene.resize({ width: WIDTH, height: HEIGHT }, 1);
          scene.show({ x: 0, y: 0, scale: HEIGHT / 2 }, { x: 0, y: 0, scale: HEIGHT / 2 });
          return { look: (x, y, zoom) => scene.move({ x, y, scale: (zoom * HEIGHT) / 2 }), drawn: () => drawn,
                   share: () => points.reduce((sum, count) => sum + count, 0) / points.length / x.length };
        };""",
    "ours, all": """
        import { Splats } from "MAP/splats";
        window.make = async (parent, x, y, codes, colors) => {
          const canvas = document.createElement("canvas");
          canvas.width = WIDTH;
          canvas.height = HEIGHT;
          parent.append(canvas);
          const splats = new Splats(canvas, x, y);
          splats.setClasses(codes);
          const look = { colors: Int32Array.from(colors), background: 0xffffff, radius: RADIUS };
          let drawn = 0;
          return { look: (x, y, zoom) => { splats.draw({ x, y, scale: (zoom * HEIGHT) / 2 }, look); drawn++; },
                   drawn: () => drawn };
        };""",
    "regl-scatterplot": """
        import createScatterplot from "regl-scatterplot";
        window.make = async (parent, x, y, codes, colors) => {
          const canvas = document.createElement("canvas");
          canvas.style.cssText = "width: 100%; height: 100%";
          parent.append(canvas);
          const pointColor = colors.map((color) => "#" + color.toString(16).padStart(6, "0"));
          const plot = createScatterplot({ canvas, width: WIDTH, height: HEIGHT, pointSize: 2 * RADIUS,
                                           colorBy: "category", pointColor });
          await plot.draw({ x, y, category: codes });
          let drawn = 0;
          plot.subscribe("drawing", () => drawn++);
          const view = (x, y, zoom) => [zoom, 0, 0, 0, 0, zoom, 0, 0, 0, 0, 1, 0, -x * zoom, -y * zoom, 0, 1];
          return { look: (x, y, zoom) => plot.view(new Float32Array(view(x, y, zoom))), drawn: () => drawn };
        };""",
    "deck.gl": """
        import { Deck, OrthographicView } from "@deck.gl/core";
        import { ScatterplotLayer } from "@deck.gl/layers";
        window.make = (parent, x, y, codes, colors) => new Promise((ready) => {
          const places = Float32Array.from({ length: 2 * x.length }, (_, i) => (i % 2 ? y : x)[i >> 1]);
          const fill = Uint8Array.from({ length: 4 * x.length }, (_, i) =>
            i % 4 === 3 ? 217 : (colors[codes[i >> 2]] >> (16 - 8 * (i % 4))) & 255);
          const view = (x, y, zoom) => ({ target: [x, y, 0], zoom: Math.log2((zoom * HEIGHT) / 2) });
          const attributes = { getPosition: { value: places, size: 2 }, getFillColor: { value: fill, size: 4 } };
          let drawn = 0;
          const deck = new Deck({
            parent, views: new OrthographicView({ flipY: false }), viewState: view(0, 0, 1), useDevicePixels: 1,
            layers: [new ScatterplotLayer({ id: "points", data: { length: x.length, attributes },
                                            radiusUnits: "pixels", getRadius: RADIUS })],
            onAfterRender: () => { drawn++; ready(answer); },
          });
          const answer = { look: (x, y, zoom) => deck.setProps({ viewState: view(x, y, zoom) }), drawn: () => drawn };
        });""",
}

MEASURE = """async ([count, seconds]) => {
  let state = 7;
  const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 4294967296;
  const normal = () => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());
  const codes = Uint16Array.from({ length: count }, (_, i) => i % 8);
  const x = Float32Array.from(codes, (code) => 0.6 * Math.cos((code * Math.PI) / 4) + 0.12 * normal());
  const y = Float32Array.from(codes, (code) => 0.6 * Math.sin((code * Math.PI) / 4) + 0.12 * normal());
  const colors = [0x2a4594, 0xeb880b, 0x077567, 0xca43a4, 0x0b84f2, 0xa4251a, 0x937602, 0x341e08];
  const frame = () => new Promise(requestAnimationFrame);
  const made = await make(document.getElementById("map"), x, y, codes, colors);
  const found = {};
  for (const motion of ["pan", "zoom"]) {
    await new Promise((rest) => setTimeout(rest, 300));
    const began = performance.now(), before = made.drawn();
    let now = 0;
    while (now < seconds) {
      if (motion === "pan") made.look(0.3 * Math.sin(3 * now), 0.3 * Math.cos(2 * now), 1.5);
      else made.look(0.1, 0.1, 2 ** (1.5 - 1.5 * Math.cos(3 * now)));
      await frame();
      now = (performance.now() - began) / 1000;
    }
    found[motion] = (made.drawn() - before) / now;
  }
  return { ...found, share: made.share?.() ?? 1 };
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round at 100,000 points")
    parser.add_argument("--points", type=int, nargs="+", default=[100_000, 200_000])
    parser.add_argument(
        "--rounds", type=int, default=3, help="measurements of each renderer, of which the median counts"
    )
    arguments = parser.parse_args()
    points, rounds, seconds = (arguments.points, arguments.rounds, 2.0)
    if arguments.quick:
        points, rounds, seconds = points[:1], 1, 1.0
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium on the path. Remedy: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        scripts = bundled(Path(folder))
        browsers = partial(playwright.chromium.launch, executable_path=chromium, args=ARGUMENTS)
        rates = {count: measured(browsers, scripts, count, rounds, seconds) for count in points}
    slower = {name: min(found[motion] for motion in MOTIONS) for name, found in rates[points[0]].items()}
    peer = max((name for name in slower if not name.startswith("ours")), key=slower.__getitem__)
    result = {
        "claim": f"frames a second of a map of {points[0]:,} points in motion",
        "ours": slower["ours"],
        "peer": slower[peer],
        "ratio": round(slower["ours"] / max(slower[peer], 0.1), 1),
        "unit": "frames/s",
        "settings": {"peer": peer, "rounds": rounds, "all": rates},
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result))


def bundled(folder: Path) -> dict[str, Path]:
    """A script a renderer."""
    run = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-save", *PACKAGES], **run)
    scripts = {}
    for number, (name, source) in enumerate(ENTRIES.items()):
        entry, scripts[name] = folder / f"entry{number}.js", folder / f"{number}.js"
        for word, value in {"MAP": MAP, "WIDTH": WIDTH, "HEIGHT": HEIGHT, "RADIUS": RADIUS}.items():
            source = source.replace(word, str(value))
        entry.write_text(source, encoding="utf-8")
        command = ["node_modules/.bin/esbuild", entry.name, "--bundle", "--minify", f"--outfile={scripts[name].name}"]
        subprocess.run([*command, "--log-level=error"], **run)
    return scripts


def measured(
    browsers: Callable[[], Browser], scripts: dict[str, Path], count: int, rounds: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Frames a second of each motion, and the mean share of the points that a frame has, by renderer."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in scripts}
    for _ in range(rounds):
        for name, script in scripts.items():
            # A browser each: frames of software WebGL are queued, and would hold up who comes next.
            browser = browsers()
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.set_content(f'<body style="margin: 0"><div id="map" style="width: {WIDTH}px; height: {HEIGHT}px">')
            page.add_script_tag(path=script)
            found[name].append(page.evaluate(MEASURE, [count, seconds]))
            browser.close()
    medians = {}
    for name, several in found.items():
        medians[name] = {part: round(statistics.median(one[part] for one in several), 2) for part in several[0]}
        rates = ", ".join(f"{motion} {medians[name][motion]:5.1f}" for motion in MOTIONS)
        print(f"{count:>8,} points  {name:17} {rates} frames/s, {medians[name]['share']:.0%} of the points", flush=True)
    return medians


if __name__ == "__main__":
    main()
