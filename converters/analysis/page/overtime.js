// SPDX-License-Identifier: Apache-2.0
// Charts over time. Columns are those of report/timeline.py: at most 256, however long the log is.

const timeline = data.timeline;
const MOST_LINES = 6;
/** Least length of the last column for rates, as a share of a column. */
const LEAST_COLUMN = 0.1;

/** Returns the series of a device and an operation ("": all); undefined if the page does not have it. */
function courseOf(device, operation) {
  return timeline.series.find(
    (one) => one.device === (device || null) && one.operation === (operation || null),
  );
}

/** Seconds from the log's beginning to the beginning of a column. */
const secondsAt = (column) => (column * timeline.interval_ns) / 1e9;

/**
 * Seconds of the log in a column, by which its rates are computed. The last column ends with the log; it counts
 * as LEAST_COLUMN of a column at least, so that the log's last I/O alone makes no peak.
 */
function secondsIn(column) {
  const rest = data.report.time.span_ns / timeline.interval_ns - column;
  return (Math.min(Math.max(rest, LEAST_COLUMN), 1) * timeline.interval_ns) / 1e9;
}

/** Returns the beginning of a column as text, with enough digits to differ from the next column's. */
function momentOf(column) {
  const [at, whole] = [column * timeline.interval_ns, timeline.columns * timeline.interval_ns];
  if (whole >= 1e11) return format.ns(at);
  const [unit, scale] = whole < 1e6 ? ["µs", 1e3] : whole < 1e9 ? ["ms", 1e6] : ["s", 1e9];
  const digits = Math.max(Math.ceil(Math.log10(scale / timeline.interval_ns)), 0);
  return `${(at / scale).toFixed(digits)} ${unit}`;
}

const spanOf = (column) => `${momentOf(column)} to ${momentOf(column + 1)}`;

/** Returns the time axis, in seconds from the log's beginning. */
function timeLine(extra) {
  return axis("value", {
    min: 0,
    max: secondsAt(timeline.columns),
    splitLine: { show: false },
    axisLabel: {
      color: css("--soft"),
      hideOverlap: true,
      showMaxLabel: false,
      formatter: (x) => format.ns(x * 1e9),
    },
    ...extra,
  });
}

/** Returns [seconds, value] points for a step line, in which each column's value holds to its end. */
function steps(values) {
  const points = values.map((value, column) => [secondsAt(column), value]);
  if (values.length) points.push([secondsAt(values.length), values[values.length - 1]]);
  return points;
}

/** Returns the column under the pointer; the last point of a step line belongs to the last column. */
function columnOf(hits) {
  return Math.min(hits[0].dataIndex, timeline.columns - 1);
}

/** Returns {interval, max} of an axis of bytes for stacked lines; the interval is a power of two. */
function binaryScale(lines) {
  const most = Math.max(
    ...lines[0].values.map((_, column) => sum(lines.map((line) => line.values[column]))),
    1,
  );
  const interval = 2 ** Math.max(Math.ceil(Math.log2(most / 5)), 0);
  return { interval, max: Math.ceil(most / interval) * interval };
}

/**
 * Returns a chart of step lines. lines: {name, values, colour, dashed, area, stack}. told: formats a value.
 * scale: axis options that depend on the lines, such as binaryScale.
 */
function stepLines(label, lines, told, height, scale) {
  return chart(
    label,
    () => ({
      tooltip: {
        ...tooltip("axis", (hits) => {
          const column = columnOf(hits);
          return tip(
            spanOf(column),
            lines.map((line) => [line.colour, line.name, told(line.values[column] ?? 0)]),
          );
        }),
        axisPointer: { type: "line", snap: true },
      },
      xAxis: timeLine(),
      yAxis: axis("value", { min: 0, ...scale, axisLabel: { color: css("--soft"), formatter: told } }),
      series: lines.map((line) => ({
        name: printable(line.name),
        type: "line",
        step: "end",
        symbol: "none",
        stack: line.stack,
        sampling: undefined,
        itemStyle: { color: line.colour },
        lineStyle: { color: line.colour, width: line.stack ? 0 : 1.6, type: line.dashed ? [3, 3] : "solid" },
        areaStyle: line.stack ? { color: line.colour, opacity: 0.85 } : undefined,
        data: steps(line.values),
      })),
    }),
    { height: height || 250 },
  );
}

/** Returns where a heat map's row begins, ns; by the buckets of distributions/sketch.py, without rounding. */
function rowBegin(row) {
  if (row <= 0) return 0;
  const per = timeline.rows_per_octave;
  const octave = Math.floor((row - 1) / per);
  return 2 ** octave * (1 + ((row - 1) % per) / per);
}

/**
 * Returns the cells of a heat map that have I/Os: [begin s, low ns, end s, high ns, log10(count), count, column].
 */
function heatCells(course) {
  const cells = [];
  course.heat.forEach((column, at) => {
    for (let i = 1; i < column.length; i += 1) {
      const row = column[0] + i - 1;
      if (column[i]) {
        cells.push([
          secondsAt(at),
          Math.max(rowBegin(row), 0.5),
          secondsAt(at + 1),
          rowBegin(row + 1),
          Math.log10(column[i]),
          column[i],
          at,
        ]);
      }
    }
  });
  return cells;
}

/** Returns the colours from few to many I/Os, by theme. */
function heatColours() {
  return document.documentElement.dataset.theme === "dark"
    ? ["#1d4b73", "#2173a6", "#2aa198", "#b5bd3b", "#ffd75e"]
    : ["#b4d3ec", "#74b0dc", "#3d8fc6", "#7b4ea3", "#5b0f3c"];
}

/** Returns the ECharts element of a cell of heatCells(). */
function drawCell(parameters, api) {
  const from = api.coord([api.value(0), api.value(3)]);
  const to = api.coord([api.value(2), api.value(1)]);
  const shape = echarts.graphic.clipRectByRect(
    { x: from[0], y: from[1], width: Math.max(to[0] - from[0], 1), height: Math.max(to[1] - from[1], 1) },
    parameters.coordSys,
  );
  return shape && { type: "rect", shape, style: { fill: api.visual("color") } };
}

/** Returns the ECharts element of a percentile in one column: a short line across the column. */
function drawMark(parameters, api) {
  const from = api.coord([api.value(0), api.value(2)]);
  const to = api.coord([api.value(1), api.value(2)]);
  return {
    type: "rect",
    shape: { x: from[0], y: from[1] - 1, width: Math.max(to[0] - from[0], 2), height: 2 },
    style: { fill: api.visual("color") },
  };
}

/** Returns the tooltip of a cell of heatCells(). */
function cellTip(course, [, low, , high, , count, column]) {
  return tip(spanOf(column), [
    ["", `${format.ns(low < 1 ? 0 : low)} to ${format.ns(high)}`, plural(count, "I/O")],
    ["", "p50", format.ns(course.p50_ns[column])],
    ["", "p90", format.ns(course.p90_ns[column])],
    ["", "p99", format.ns(course.p99_ns[column])],
    ["", "max", format.ns(course.max_ns[column])],
  ]);
}

/** Returns a chart of latency over time: a heat map, with p50 and p99 marked in each column. */
function heatMap(course) {
  const cells = heatCells(course);
  const least = Math.min(...cells.map((cell) => cell[1]));
  const most = Math.max(...cells.map((cell) => cell[3]));
  const top = Math.max(...cells.map((cell) => cell[4]), 0.3);
  const marks = (name, values, colour) => ({
    name,
    type: "custom",
    renderItem: drawMark,
    z: 5,
    silent: true,
    itemStyle: { color: colour },
    encode: { x: [0, 1], y: 2 },
    clip: true,
    data: values
      .map((x, column) => [secondsAt(column), secondsAt(column + 1), x])
      .filter((one) => one[2] > 0),
  });
  return chart(
    "latency over time",
    () => ({
      grid: { left: 8, right: 16, top: 34, bottom: 44, containLabel: true },
      legend: { ...basics().legend, data: ["p50", "p99"] },
      tooltip: tooltip("item", (hit) => (hit.seriesIndex === 0 ? cellTip(course, hit.value) : "")),
      visualMap: {
        min: 0,
        max: top,
        calculable: false,
        orient: "horizontal",
        left: "center",
        bottom: 0,
        dimension: 4,
        seriesIndex: 0,
        itemHeight: 160,
        itemWidth: 12,
        textStyle: { color: css("--soft") },
        text: [plural(Math.round(10 ** top), "I/O"), "1"],
        inRange: { color: heatColours() },
        hoverLink: false,
      },
      xAxis: timeLine(),
      yAxis: timeAxis({ min: 10 ** Math.floor(Math.log10(least)), max: 10 ** Math.ceil(Math.log10(most)) }),
      series: [
        {
          name: "I/Os",
          type: "custom",
          renderItem: drawCell,
          dimensions: ["from", "low", "to", "high", "log", "count", "column"],
          encode: { x: [0, 2], y: [1, 3] },
          data: cells,
          clip: true,
          progressive: 0,
        },
        marks("p50", course.p50_ns, css("--ink")),
        marks("p99", course.p99_ns, "#e0532f"),
      ],
    }),
    { height: 380, renderer: "canvas" },
  );
}

/**
 * Returns the series of the chosen operation, or of each operation if all are chosen. If the page has none
 * of these, the series of all operations, if there is one.
 */
function coursesShown(view) {
  const names = view.operation ? [view.operation] : view.operations.map((one) => one.operation);
  const found = names.map((name) => courseOf(view.device, name)).filter(Boolean);
  if (found.length) return found;
  const whole = courseOf(view.device, "");
  return whole ? [whole] : [];
}

/** Returns a chart of I/Os (key "ios") or bytes per second over time. told: formats a rate. */
function throughput(view, key, told) {
  const lines = coursesShown(view).map((course, place) => ({
    name: course.operation || "all",
    stack: "all",
    colour: opColour(course.operation, place),
    values: course[key].map((x, column) => x / secondsIn(column)),
  }));
  if (!lines.length) return missingCourse();
  return key === "ios"
    ? stepLines("I/Os per second", lines, told)
    : stepLines("bytes per second", lines, told, 250, binaryScale(lines));
}

function missingCourse() {
  return el("p", { class: "note" }, "Not in this page: it holds I/O over time for the busiest devices only.");
}

/** Returns a chart of queue depth over time: of the chosen device, or of the busiest ones. */
function queueDepth(view) {
  const mean = (x) => (x < 10 ? three(x) : format.count(x));
  const devices = timeline.depths.filter((one) => !view.device || one.device === view.device);
  if (!devices.length) return missingCourse();
  let lines;
  if (view.device) {
    const [one] = devices;
    lines = [
      ["bios, mean", "queue_mean", PALETTE[0]],
      ["most", "queue_max", "#8fb9de", true],
      ["requests, mean", "issued_mean", PALETTE[1]],
      ["most ", "issued_max", "#eeb48e", true],
    ].map(([name, key, colour, dashed]) => ({ name, values: one[key], colour, dashed }));
  } else {
    lines = devices
      .slice(0, MOST_LINES)
      .map((one, place) => ({
        name: one.device,
        values: one.queue_mean,
        colour: PALETTE[place % PALETTE.length],
      }));
  }
  return stepLines("in flight over time", lines, mean);
}
