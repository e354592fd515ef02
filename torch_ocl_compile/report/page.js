// torch_ocl_compile/report/page.js: searches and sorts the kernels, opens them, unpacks their sources, draws the charts.
"use strict";
(() => {
  const table = document.getElementById("kernel-table");
  const kernels = [...table.querySelectorAll("tbody.kernel")];
  const search = document.getElementById("search");
  const numbers = new Set(["order", "time", "share", "roof", "bytes", "bandwidth", "flops", "rate"]);

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const kernel of kernels) {
      kernel.hidden = !words.every((word) => kernel.dataset.search.includes(word));
      shown += !kernel.hidden;
    }
    document.getElementById("shown").value = `${shown} of ${kernels.length}`;
    document.getElementById("nothing").hidden = shown > 0;
  }

  function sort(key, descending) {
    const value = (kernel) => (numbers.has(key) ? Number(kernel.dataset[key]) : kernel.dataset[key]);
    const compare = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : a.dataset.order - b.dataset.order);
    kernels.sort(compare);
    if (descending) kernels.reverse();
    table.append(...kernels);
    for (const button of table.querySelectorAll("th button"))
      button.parentElement.setAttribute("aria-sort", button.dataset.key !== key ? "none" : descending ? "descending" : "ascending");
  }

  function open(kernel, wanted) {
    kernel.querySelector(".more").hidden = !wanted;
    kernel.querySelector("button.open").setAttribute("aria-expanded", wanted);
    kernel.classList.toggle("opened", wanted);
  }

  function openTarget() {
    const kernel = kernels.find((k) => k.id === decodeURIComponent(location.hash.slice(1)));
    if (!kernel) return;
    kernel.hidden = false;
    open(kernel, true);
    kernel.scrollIntoView({ block: "start" });
  }

  let sources;
  async function unpack() {
    const packed = Uint8Array.from(atob(document.getElementById("sources").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).json();
  }

  table.addEventListener("click", (event) => {
    const sorter = event.target.closest("th button");
    if (sorter) {
      const before = sorter.parentElement.getAttribute("aria-sort");
      const first = numbers.has(sorter.dataset.key) && sorter.dataset.key !== "order" ? "descending" : "ascending";
      const descending = before === "none" ? first === "descending" : before === "ascending";
      sort(sorter.dataset.key, descending);
      return;
    }
    const head = event.target.closest("tr.head");
    if (head && !event.target.closest("a") && !getSelection().toString()) {
      const kernel = head.parentElement;
      open(kernel, !kernel.classList.contains("opened"));
    }
  });
  table.addEventListener("toggle", async (event) => {
    const details = event.target;
    if (!details.matches("details.source") || !details.open) return;
    sources ??= unpack();
    details.querySelector("pre").innerHTML = (await sources)[Number(details.dataset.source)];
  }, true);
  search.addEventListener("input", filter);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-search-for]");
    if (link) {
      search.value = link.dataset.searchFor;
      filter();
    }
  });
  addEventListener("hashchange", openTarget);

  const dark = matchMedia("(prefers-color-scheme: dark)");
  function style() {
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name).trim();
    const label = { labelColor: colour("--muted"), titleColor: colour("--muted"), titleFontWeight: "normal" };
    return {
      background: "transparent",
      font: css.getPropertyValue("--text").trim(),
      view: { stroke: "transparent" },
      axis: { ...label, gridColor: colour("--faint"), domainColor: colour("--faint"), tickColor: colour("--faint"), labelFontSize: 11 },
      legend: { ...label, labelColor: colour("--ink"), orient: "top", symbolStrokeColor: colour("--muted") },
      range: { category: Array.from({ length: 10 }, (_, i) => i + 1).map((i) => colour(`--series-${i}`)) },
      line: { stroke: colour("--muted") },
    };
  }
  async function draw() {
    const specs = JSON.parse(document.getElementById("charts").textContent);
    const options = () => ({ actions: false, renderer: "svg", config: style(), tooltip: { theme: dark.matches ? "dark" : "light" } });
    for (const figure of document.querySelectorAll("[data-chart]"))
      if (figure.dataset.chart in specs) await vegaEmbed(figure, specs[figure.dataset.chart], options());
    document.documentElement.dataset.drawn = "";
  }
  dark.addEventListener("change", draw);

  filter();
  const measured = kernels.some((kernel) => Number(kernel.dataset.time) >= 0);
  sort(measured ? "time" : "order", measured);
  openTarget();
  draw();
})();
