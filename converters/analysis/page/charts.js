// SPDX-License-Identifier: Apache-2.0
// Charts of the chosen I/O as a whole, by Apache ECharts.

const STAGE_COLOURS = {
  Q2G: "#e69f00",
  Q2M: "#d9c25f",
  "pre-flush": "#9a7fd1",
  G2I: "#8c9a2b",
  M2I: "#6b8e23",
  M2D: "#a0674b",
  I2D: "#d55e00",
  G2D: "#c48a4c",
  Q2D: "#8d99a6",
  D2C: "#2f7fc1",
  R2D: "#c0392b",
  "post-flush": "#c77fb5",
  flush: "#6f57b5",
  "bio-based": "#1f9e77",
  failed: "#e0245e",
  unknown: "#888888",
};
const OP_COLOURS = { read: "#2f7fc1", write: "#e07b39", flush: "#8a63d2", discard: "#1f9e77" };
const PALETTE = ["#2f7fc1", "#e07b39", "#1f9e77", "#8a63d2", "#d1a400", "#c0392b", "#5aa7a7", "#a0674b"];
const SUMMARY = [
  ["min", "min_ns"],
  ["p50", "p50_ns"],
  ["p90", "p90_ns"],
  ["p99", "p99_ns"],
  ["p99.9", "p99_9_ns"],
  ["max", "max_ns"],
];
/** Width of charts in print, CSS pixels: a little less than the 186 mm that page.css leaves on a sheet. */
const PAPER_WIDTH = 700;
/** Charts of the page, as made by chart(). */
const shown = [];

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function opColour(name, place) {
  return OP_COLOURS[name] || PALETTE[(place + 2) % PALETTE.length];
}

/**
 * Returns a new element for a chart, and adds the chart to `shown`. drawAll() draws the chart once the
 * element is in the page. options: function that returns ECharts options. renderer: "svg" or "canvas".
 */
function chart(label, options, { height, renderer = "svg" } = {}) {
  const place = el("div", { class: "chart", role: "img", "aria-label": label });
  if (height) place.style.height = `${height}px`;
  shown.push({ place, options, renderer, made: null });
  return place;
}

/** Draws all charts in `shown`, whose elements must be in the page. */
function drawAll() {
  for (const one of shown) {
    one.made = echarts.init(one.place, null, { renderer: one.renderer, devicePixelRatio: 2 });
    one.made.setOption({ ...basics(), ...one.options() });
  }
}

/** Disposes of all charts, and empties `shown`. */
function forgetAll() {
  for (const one of shown.splice(0)) if (one.made) one.made.dispose();
}

/**
 * Draws every chart again with this width (pixels, or "auto"). A resize alone would be drawn in the next
 * animation frame, which does not come before the page is printed.
 */
function drawAgain(width) {
  for (const one of shown) {
    one.made.resize({ width });
    one.made.setOption({ ...basics(), ...one.options() }, true);
  }
}

/** Returns the ECharts options that all charts share, in the colours of the current theme. */
function basics() {
  return {
    animation: false,
    textStyle: { color: css("--ink"), fontFamily: "system-ui, sans-serif" },
    color: PALETTE,
    grid: { left: 8, right: 16, top: 34, bottom: 8, containLabel: true },
    legend: {
      top: 0,
      type: "scroll",
      textStyle: { color: css("--ink") },
      pageTextStyle: { color: css("--ink") },
      pageIconColor: css("--accent"),
    },
  };
}

/**
 * Returns a tooltip's element: a heading, then lines [colour, text, value]; colour may be "", value may be
 * left out. Names become text nodes, so that markup in a name has no effect.
 */
function tip(heading, lines) {
  return el(
    "div",
    {},
    el("b", {}, heading),
    lines.map(([colour, name, value]) =>
      el(
        "div",
        {},
        colour ? el("span", { class: "key", style: { background: colour } }) : null,
        name,
        value === undefined ? "" : ": ",
        value === undefined ? "" : el("b", {}, value),
      ),
    ),
  );
}

/** Returns ECharts tooltip options. trigger: "item" or "axis". formatter: returns the element to show. */
function tooltip(trigger, formatter) {
  return {
    trigger,
    confine: true,
    extraCssText: "max-width: 22rem; white-space: normal;",
    backgroundColor: css("--card"),
    borderColor: css("--line"),
    textStyle: { color: css("--ink"), fontSize: 13 },
    axisPointer: { type: "shadow" },
    formatter,
  };
}

/** Returns ECharts axis options in the theme's colours. extra: options that override these. */
function axis(type, extra) {
  return {
    type,
    axisLabel: { color: css("--soft"), hideOverlap: true },
    axisLine: { lineStyle: { color: css("--line") } },
    splitLine: { lineStyle: { color: css("--line") } },
    nameTextStyle: { color: css("--soft") },
    ...extra,
  };
}

/** Returns a logarithmic axis of times in ns. */
function timeAxis(extra) {
  return axis("log", {
    logBase: 10,
    ...extra,
    axisLabel: { color: css("--soft"), formatter: (x) => format.ns(x), hideOverlap: true },
  });
}

/** Returns a tooltip's lines on a stage's share and times. */
const timesTold = (stage) => [
  ["", "share", format.share(stage.share)],
  ["", "count", format.count(stage.count)],
  ["", "mean", format.ns(stage.mean_ns)],
  ["", "p50", format.ns(stage.p50_ns)],
  ["", "p99", format.ns(stage.p99_ns)],
  ["", "max", format.ns(stage.max_ns)],
];

/**
 * Returns a chart with one bar for each group: the shares of the stages in the group's time. colours: stage →
 * colour, in the order of the bar's parts. meanings: stage → what it means. names: stage → its name, where that
 * is another. told: (stage, group) → lines of the tooltip.
 */
function stageBars(
  groups,
  {
    label = "share of the time by stage",
    colours = STAGE_COLOURS,
    meanings = data.words.stages,
    names = {},
    told = timesTold,
  } = {},
) {
  const stages = Object.keys(colours).filter((name) =>
    groups.some((group) => group.stages.some((stage) => stage.stage === name)),
  );
  const of = (group, name) => group.stages.find((stage) => stage.stage === name);
  const height = 70 + 44 * groups.length;
  return chart(
    label,
    () => ({
      grid: { left: 8, right: 24, top: 34, bottom: 8, containLabel: true },
      tooltip: tooltip("item", (hit) => {
        const stage = of(groups[hit.dataIndex], stages[hit.seriesIndex]);
        if (!stage) return "";
        return tip(`${groups[hit.dataIndex].operation || "all"}: ${names[stage.stage] || stage.stage}`, [
          ["", meanings[stage.stage] || ""],
          ...told(stage, groups[hit.dataIndex]),
        ]);
      }),
      xAxis: axis("value", {
        min: 0,
        max: 1,
        axisLabel: { color: css("--soft"), formatter: (x) => `${Math.round(x * 100)} %` },
      }),
      yAxis: axis("category", {
        inverse: true,
        data: groups.map((group) => printable(group.operation || "all")),
        axisLabel: { color: css("--ink") },
      }),
      series: stages.map((name) => ({
        name: names[name] || name,
        type: "bar",
        stack: "share",
        barMaxWidth: 30,
        itemStyle: { color: colours[name] },
        label: {
          show: true,
          color: "#fff",
          textBorderColor: "rgba(0,0,0,.55)",
          textBorderWidth: 2,
          formatter: (hit) => (hit.value > 0.07 ? `${names[name] || name} ${Math.round(hit.value * 100)} %` : ""),
        },
        data: groups.map((group) => {
          const s = of(group, name);
          return s ? s.share : null;
        }),
      })),
    }),
    { height },
  );
}

/** Returns a chart with one line for each group: min, percentiles and max of its latency. */
function percentileLines(groups) {
  return chart(
    "percentiles of latency",
    () => ({
      tooltip: tooltip("axis", (hits) =>
        tip(
          hits[0].axisValue,
          hits.map((hit) => [hit.color, hit.seriesName, hit.value ? format.ns(hit.value) : "–"]),
        ),
      ),
      xAxis: axis("category", { data: SUMMARY.map(([name]) => name), splitLine: { show: false } }),
      yAxis: timeAxis(),
      series: groups.map((group, place) => ({
        name: printable(group.operation || "all"),
        type: "line",
        symbolSize: 7,
        itemStyle: { color: opColour(group.operation, place) },
        lineStyle: { color: opColour(group.operation, place), width: 2 },
        data: SUMMARY.map(([, key]) =>
          group.latency.count && group.latency[key] > 0 ? group.latency[key] : null,
        ),
      })),
    }),
    { height: 250 },
  );
}

/**
 * Returns a chart of histograms side by side. sets: {name, buckets, colour} of each histogram. unit: "ns",
 * "bytes", or "" for plain numbers. zero: label of the bucket of 0. share: bars are shares, not counts.
 */
function histogram(label, sets, unit, { zero, share } = {}) {
  const end = unit ? `_${unit}` : "";
  const told = (x) => format[unit || "count"](x);
  const begins = [...new Set(sets.flatMap((set) => set.buckets.map((b) => b[`begin${end}`])))].sort(
    (a, b) => a - b,
  );
  const all = [];
  for (let at = begins[0]; at !== undefined && at <= begins[begins.length - 1]; at = at ? at * 2 : 1)
    all.push(at);
  // The bucket of 0 stands next to the first bucket above it, without empty bars in between.
  const kept = all.filter((at) => at === 0 || at >= (begins.find((b) => b > 0) || 0));
  const totals = sets.map((set) => sum(set.buckets.map((b) => b.count)) || 1);
  const counts = sets.map((set) => new Map(set.buckets.map((b) => [b[`begin${end}`], b.count])));
  return chart(
    label,
    () => ({
      tooltip: tooltip("axis", (hits) => {
        const at = kept[hits[0].dataIndex];
        const heading =
          at === 0 ? zero || told(0) : at === 1 && !unit ? "1" : `${told(at)} to below ${told(at * 2)}`;
        return tip(
          heading,
          sets.map((set, i) => [
            set.colour,
            set.name,
            `${format.count(counts[i].get(at) || 0)} (${format.share((counts[i].get(at) || 0) / totals[i])})`,
          ]),
        );
      }),
      xAxis: axis("category", {
        splitLine: { show: false },
        data: kept.map((at) => (at === 0 ? zero || told(0) : told(at).replace(".0 ", " "))),
      }),
      yAxis: axis(
        "value",
        share
          ? { axisLabel: { color: css("--soft"), formatter: (x) => `${Math.round(x * 100)} %` } }
          : { minInterval: 1, axisLabel: { color: css("--soft"), formatter: (x) => format.count(x) } },
      ),
      series: sets.map((set, i) => ({
        name: set.name,
        type: "bar",
        barGap: "0%",
        barCategoryGap: "12%",
        itemStyle: { color: set.colour },
        data: kept.map((at) => (counts[i].get(at) || 0) / (share ? totals[i] : 1)),
      })),
    }),
    { height: 250 },
  );
}
