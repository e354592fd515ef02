# tests/device/tools/test_report_page.py: the report's page in headless Chromium: no errors, search, sort, sources, charts, no overflow.
"""The test adds a script to a copy of the page. The script acts like a user, and writes what it finds into the page.
Chromium prints the page."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
import torch
from torch import nn

from torch_ocl_compile import explain

pytestmark = pytest.mark.sampled()  # Runs on the first device only: the page does not depend on the runtime.

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
LISTENERS = """<script>
window.problems = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
  addEventListener(kind, (e) => problems.push(`${kind}: ${e.message || e.reason || e.blockedURI || e.target.outerHTML}`), true);
const said = console.error;
console.error = console.warn = (...words) => { problems.push(words.join(" ")); };
</script>"""
USER = """<script>
(async () => {
  const found = {};
  const wait = (condition) => new Promise((done) => {
    const tick = () => (condition() ? done() : setTimeout(tick, 20));
    tick();
  });
  const shown = () => [...document.querySelectorAll("tbody.kernel")].filter((k) => !k.hidden);
  const order = (key) => shown().map((k) => Number(k.dataset[key]));
  await wait(() => document.documentElement.dataset.drawn !== undefined);
  found.charts = document.querySelectorAll(".chart svg").length;
  found.first = order("time");
  const sorter = (key) => document.querySelector(`th button[data-key=${key}]`);
  sorter("bytes").click();
  found.bytes = order("bytes");
  sorter("bytes").click();
  found.bytesAgain = order("bytes");
  found.sorted = sorter("bytes").parentElement.getAttribute("aria-sort");
  sorter("computes").click();
  found.computes = shown().map((k) => k.dataset.computes);
  const search = document.getElementById("search");
  const look = (text) => { search.value = text; search.dispatchEvent(new Event("input")); return shown().map((k) => k.id); };
  found.gemm = look("GEMM forward");
  found.nothing = look("no such kernel").length;
  found.message = !document.getElementById("nothing").hidden;
  found.all = look("").length;
  const kernel = shown()[0];
  kernel.querySelector("button.open").click();
  found.opened = !kernel.querySelector(".more").hidden;
  kernel.querySelector("details.source").open = true;
  await wait(() => kernel.querySelector("pre.code").textContent);
  found.source = kernel.querySelector("pre.code").textContent;
  found.highlighted = kernel.querySelectorAll("pre.code span").length;
  found.id = kernel.id;
  found.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  found.paper = getComputedStyle(document.body).backgroundColor;
  found.problems = problems;
  const result = document.createElement("pre");
  result.id = "found";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
})().catch((e) => { problems.push(String(e)); });
</script>"""


@pytest.fixture(scope="module")
def made(tmp_path_factory, selected_devices):
    """Returns an explanation of a model, and the path of its page with the test's scripts added."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).to(
        "ocl"
    )
    it = explain(model, torch.randn(2, 3, 8, 8, device="ocl"), backward=True, runs=1)
    path = tmp_path_factory.mktemp("report") / "report.html"
    it.save(path)
    page = path.read_text().replace("<head>", "<head>" + LISTENERS, 1)
    path.write_text(page[: page.rindex("</body>")] + USER + "</body></html>")
    return it, path


def visit(path, width, dark=False):
    """Opens the page in Chromium. Returns what the script found."""
    run = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent / 'profile'}",
         f"--window-size={width},900", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
         "--virtual-time-budget=20000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found, f"the page's scripts did not end\n{run.stderr[-2000:]}"
    return json.loads(html.unescape(found[1]))


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (500, True)])
def test_in_a_browser(made, width, dark):
    it, path = made
    kernels = {f"{k.graph}-{k.position}": k for graph in it.graphs for k in graph.kernels}
    found = visit(path, width, dark)
    assert found["problems"] == []
    assert found["charts"] == len(it.graphs) + 1
    assert found["first"] == sorted(found["first"], reverse=True) and len(found["first"]) == len(kernels)
    assert found["bytes"] == sorted(found["bytes"], reverse=True) and found["bytesAgain"] == sorted(found["bytes"])
    assert found["sorted"] == "ascending" and found["computes"] == sorted(found["computes"])
    assert sorted(found["gemm"]) == sorted(i for i, k in kernels.items() if "gemm" in k.kind and "forward" in k.graph)
    assert found["gemm"] and found["nothing"] == 0 and found["message"] and found["all"] == len(kernels)
    assert (
        found["opened"] and found["source"].split() == kernels[found["id"]].text.split() and found["highlighted"] > 10
    )
    assert found["wide"] <= 0, "the page is wider than the window"
    assert found["dark"] == dark and (sum(map(int, re.findall(r"\d+", found["paper"]))) < 200) == dark
