"""Evaluates the drawings of the dashboards with the oldest and the newest Vega that draw them."""

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from kibana.dashboard_model import Drawing, Json
from tests.e2e.images import default_cache
from tests.prerequisites import skip_or_fail

VERSIONS: Final = ("5.17.0", "6.2.0")
"""Of Kibana 7.10, and of OpenSearch Dashboards 3."""
# Reads a specification a line, and answers each with a line.
_EVALUATE: Final = """
function logging(warnings) {
  const logger = {
    level() { return logger; }, error(...args) { warnings.push(args.join(' ')); return logger; },
    warn(...args) {
      if (!args.join(' ').startsWith('Infinite extent')) warnings.push(args.join(' '));
      return logger;
    },
    info() { return logger; }, debug() { return logger; },
  };
  return logger;
}
async function evaluated(vega, spec) {
  const warnings = [];
  const view = new vega.View(vega.parse(spec), {
    renderer: 'none', logger: logging(warnings), tooltip: () => {},
  });
  await view.width(spec.usermeta.width).height(500).runAsync();
  await view.resize().runAsync();  // the axes need a part of the size
  const texts = [];
  const boxes = [];
  const labels = [];
  const rects = [];
  function place(item, x, y, places) {
    const drawn = 0.56 * item.fontSize * String(item.text).length;  // its estimate is half as long again
    const width = item.limit ? Math.min(item.limit, drawn) : drawn;
    const left = x + item.x - ({center: width / 2, right: width}[item.align] || 0);
    places.push([String(item.text), left, y + item.y - item.fontSize / 2, left + width, y + item.y + item.fontSize / 2]);
  }
  (function walk(item, x, y) {
    if (item.marktype === 'text') {
      for (const text of item.items) {
        if (!text.text) continue;
        texts.push(String(text.text));
        if (item.role === 'mark') place(text, x, y, boxes);
        else if (item.role === 'axis-label' && text.opacity) place(text, x, y, labels);
      }
    } else if (item.marktype === 'rect') {
      for (const {x: left, y: top, width, height, fill} of item.items)
        if (fill && fill !== 'transparent') rects.push([x + left, y + top, x + left + width, y + top + height]);
    } else {
      for (const inner of item.items || []) walk(inner, x + (item.x || 0), y + (item.y || 0));
    }
    for (const inner of item.axes || []) walk(inner, x, y);
  })(view.scenegraph().root, 0, 0);
  let legend = 0;
  (function scale(item) {
    if (item.role === 'legend-gradient' || item.role === 'legend-band') {
      for (const part of item.items) legend = Math.max(legend, part.bounds.x2 - item.bounds.x1);
    }
    for (const inner of item.items || []) scale(inner);
    for (const inner of item.legends || []) scale(inner);
  })(view.scenegraph().root);
  const data = {};
  for (const {name} of spec.data) data[name] = view.data(name);
  const answer = JSON.stringify({data, texts, boxes, labels, rects, legend, width: view.width(), warnings});
  view.finalize();
  return answer;
}
import(process.argv[1]).then(async (loaded) => {
  const vega = loaded.View ? loaded : loaded.default;
  for await (const line of require('readline').createInterface({input: process.stdin})) {
    process.stdout.write(await evaluated(vega, JSON.parse(line)) + '\\n');
  }
}).catch((error) => { console.error(error); process.exit(1); });
"""


def search_bodies(drawing: Drawing, start: str, end: str, *conditions: Json) -> dict[str, Json]:
    """The search of each data set, within a time range, as the products send it."""
    time_range = {"range": {"@timestamp": {"gte": start, "lt": end}}}
    query = {"bool": {"must": [time_range], "filter": list(conditions)}}
    return {
        data["name"]: {**data["url"]["body"], "query": query}
        for data in drawing.spec["data"]
        if "url" in data
    }


def evaluate(
    drawing: Drawing, answers: Mapping[str, Json], version: str, *, width: int = 1000
) -> dict[str, Any]:
    """The rows of each data set (``data``), all texts, where each text outside an axis is
    (``boxes``: text, left, top, right, bottom in pixels) and the same of the texts of axes (``labels``),
    where each rectangle with a colour is (``rects``: left, top, right, bottom), how long the scale of its colours is (``legend``), the ``width`` without the axes, and all warnings
    of Vega, for the answers of the searches. An axis without a value is no warning.
    """
    spec = {**json.loads(json.dumps(drawing.spec)), "usermeta": {"width": width}}
    for data in spec["data"]:
        if data["name"] in answers:
            del data["url"]
            data["values"] = answers[data["name"]]
    node = _evaluator(version)
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(json.dumps(spec) + "\n")
    node.stdin.flush()
    line = node.stdout.readline()
    if not line:
        _evaluator.cache_clear()
    assert line, f"Node.js ended: its standard error says why {drawing.title} cannot be drawn"
    result: dict[str, Any] = json.loads(line)
    return result


@cache
def _evaluator(version: str) -> subprocess.Popen[str]:
    """Node.js with Vega, until the end of this process: loading Vega costs more than a drawing."""
    node = subprocess.Popen(
        ("node", "-e", _EVALUATE, str(_module(version))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TZ": "UTC"},
    )
    atexit.register(node.communicate)  # it ends with its input
    return node


@cache
def _module(version: str) -> Path:
    if shutil.which("node") is None or shutil.which("npm") is None:
        skip_or_fail("Vega needs Node.js and npm: on Debian, apt-get install nodejs npm.")
    folder = default_cache() / f"vega-{version}"
    module = folder / "node_modules/vega/build/vega-node.js"
    if version.startswith("6"):
        module = folder / "node_modules/vega/build/vega.module.js"
    if not module.exists():
        _fetch(version, folder)
    return module


def _fetch(version: str, folder: Path) -> None:
    """Install Vega into the folder, where its modules appear at once: several test processes may
    do it at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="partial-", dir=folder) as partial:
        words = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix")
        fetched = subprocess.run(
            (*words, partial, f"vega@{version}"), capture_output=True, text=True, check=False
        )
        if fetched.returncode:
            skip_or_fail(f"Vega {version} cannot be fetched: {fetched.stderr[-300:]}")
        with contextlib.suppress(OSError):  # another process was faster
            (Path(partial) / "node_modules").rename(folder / "node_modules")
