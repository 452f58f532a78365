// SPDX-License-Identifier: Apache-2.0
// A flame graph, by Apache ECharts. The URL's fragment holds the state: #by=bytes&find=ext4&frame=12

const root = document.documentElement;
const byId = (name) => document.getElementById(name);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const { frames } = data;
const ROW = 20;
const FOUND = "#d33bd3";
/** Width in pixels below which a frame is not drawn. */
const NARROWEST = 0.4;
/** Key of each weight: [name, format]. */
const WEIGHTS = {
  bios: ["I/Os", "count"],
  bytes: ["data", "bytes"],
  latency_ns: ["time", "ns"],
};
/** [side, name in the legend] of each kind of frame. */
const SIDES = [
  ["recording", "recording"],
  ["command", "command"],
  ["program", "program"],
  ["kernel", "kernel"],
  ["module", "kernel module"],
  ["unknown", "not known"],
];
/** The choice, with the chosen frame's callers, the frames' left edges, and the frames found. */
let state = null;

/** Returns the choice in the URL's fragment; unknown values as if they were not there. */
function chosen() {
  const words = new URLSearchParams(location.hash.slice(1));
  const frame = Number(words.get("frame") || 0);
  return {
    by: WEIGHTS[words.get("by")] ? words.get("by") : data.by,
    find: words.get("find") || "",
    frame: Number.isInteger(frame) && frames[frame] ? frame : 0,
    theme: words.get("theme") || "",
  };
}

/** Changes the choice in the URL's fragment, and draws the page again. */
function choose(changes) {
  const words = Object.entries({ ...chosen(), ...changes }).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(words)}`);
  render();
}

const theme = () => chosen().theme || (dark.matches ? "dark" : "light");

/** Returns the left edge of each frame, in the weight `by`. Callers stand before the frames they called. */
function begins(by) {
  const [found, free] = [[], []];
  frames.forEach((frame, at) => {
    found[at] = frame.parent < 0 ? 0 : free[frame.parent];
    free[at] = found[at];
    if (frame.parent >= 0) free[frame.parent] += frame[by];
  });
  return found;
}

/** Returns the set of a frame and all its callers, by index. */
function callersOf(at) {
  const found = new Set();
  for (let one = at; one >= 0; one = frames[one].parent) found.add(one);
  return found;
}

/**
 * Returns {hits, weight}: the indices of the frames whose name contains the text, and the weight that came
 * through them; a hit inside another hit does not count again.
 */
function search(text, by) {
  const wanted = text.toLowerCase();
  const hits = new Set();
  const within = [];
  let weight = 0;
  frames.forEach((frame, at) => {
    const hit = wanted !== "" && printable(frame.name).toLowerCase().includes(wanted);
    const above = frame.parent >= 0 && within[frame.parent];
    if (hit) hits.add(at);
    if (hit && !above) weight += frame[by];
    within[at] = hit || above;
  });
  return { hits, weight };
}

/**
 * Returns [from, to, depth, index] of each frame to draw: the chosen frame, its callers, and the frames
 * it called, but for those too narrow in a graph of `width` pixels.
 */
function rows(width) {
  const { by, frame, starts, callers } = state;
  const [from, to] = [starts[frame], starts[frame] + frames[frame][by]];
  const least = ((to - from) * NARROWEST) / width;
  const found = [];
  frames.forEach((one, at) => {
    const [begin, end] = [starts[at], starts[at] + one[by]];
    const inside = begin >= from && end <= to && one.depth >= frames[frame].depth;
    if ((inside || callers.has(at)) && end - begin >= least && end > begin)
      found.push([Math.max(begin, from), Math.min(end, to), one.depth, at]);
  });
  return found;
}

/** Returns the ECharts element of one row of rows(). */
function drawFrame(parameters, api) {
  const [left, top] = api.coord([api.value(0), api.value(2)]);
  const [right] = api.coord([api.value(1), api.value(2)]);
  const at = api.value(3);
  const wide = right - left;
  const found = state.found.hits.has(at);
  const faded = state.callers.has(at) && at !== state.frame;
  return {
    type: "rect",
    shape: { x: left, y: top - ROW / 2, width: Math.max(wide - 0.5, 0.3), height: ROW - 1 },
    style: { fill: found ? FOUND : frames[at].colour, opacity: faded ? 0.55 : 1 },
    textConfig: { position: "insideLeft", distance: 3 },
    textContent:
      wide > 24
        ? {
            style: {
              text: printable(frames[at].name),
              fill: found ? "#fff" : "#1b1f24",
              font: "11px monospace",
              width: wide - 6,
              overflow: "truncate",
              ellipsis: "…",
            },
          }
        : undefined,
  };
}

const shareOf = (frame, by) => format.share(frames[0][by] ? frame[by] / frames[0][by] : 0);

/** Returns the ECharts options of the flame graph, for `state`. */
function options() {
  const most = rows(byId("main").clientWidth || 1000);
  const depth = Math.max(...frames.map((frame) => frame.depth));
  const { by, frame, starts } = state;
  const hidden = { show: false };
  return {
    grid: { left: 0, right: 0, top: 0, bottom: 0 },
    legend: hidden,
    tooltip: tooltip("item", (hit) => {
      const one = frames[hit.value[3]];
      return tip(
        one.name,
        Object.entries(WEIGHTS).map(([key, [name, kind]]) => [
          "",
          name,
          `${format[kind](one[key])} (${shareOf(one, key)})`,
        ]),
      );
    }),
    xAxis: { type: "value", min: starts[frame], max: starts[frame] + (frames[frame][by] || 1), ...hidden },
    yAxis: { type: "value", min: -0.5, max: depth + 0.5, ...hidden },
    series: [
      { type: "custom", renderItem: drawFrame, encode: { x: [0, 1], y: 2 }, data: most, progressive: 0 },
    ],
  };
}

/** Returns a line with the chosen frame's figures, and the share of the I/O that the search found. */
function chosenLine() {
  const { by, find, frame, found } = state;
  const one = frames[frame];
  const told = Object.entries(WEIGHTS).flatMap(([key, [name, kind]], place) => [
    `${place ? ", " : ""}${name} `,
    figure(one[key], kind, `frames.${frame}.${key}`),
    ` (${shareOf(one, key)})`,
  ]);
  const hits = find
    ? ` · “${find}”: ${plural(found.hits.size, "frame")}, ${shareOf({ [by]: found.weight }, by)} of ${WEIGHTS[by][0]}`
    : "";
  return el("p", { id: "chosen" }, el("b", {}, one.name), ": ", told, hits);
}

/** Returns a box with the notes about the graph; null if there are none. */
function notes() {
  const left = data.left_out ? [`The ${plural(data.left_out, "lightest frame")} are not in this page.`] : [];
  const lines = [...data.words.notes, ...left];
  return lines.length
    ? el(
        "div",
        { class: "warn" },
        el(
          "ul",
          {},
          lines.map((line) => el("li", {}, line)),
        ),
      )
    : null;
}

/** Returns the legend: a colour for each kind of frame that occurs. */
function keys() {
  const used = SIDES.map(([side, name]) => [frames.find((frame) => frame.side === side), name]);
  return el(
    "p",
    { class: "keys" },
    used
      .filter(([frame]) => frame)
      .map(([frame, name]) =>
        el("span", {}, el("span", { class: "key", style: { background: frame.colour } }), name),
      ),
  );
}

/** Draws the graph for the choice in the URL's fragment, and sets `state`. */
function render() {
  const { by, find, frame } = chosen();
  root.dataset.theme = theme();
  byId("theme").textContent = theme() === "dark" ? "☀ light" : "☾ dark";
  byId("by").value = by;
  if (byId("find").value !== find) byId("find").value = find;
  state = { by, find, frame, starts: begins(by), callers: callersOf(frame), found: search(find, by) };
  forgetAll();
  const depth = Math.max(...frames.map((one) => one.depth));
  const place = chart("flame graph", options, { height: ROW * (depth + 1), renderer: "canvas" });
  const about = `Frames are as wide as their share of ${WEIGHTS[by][0]}, the outermost at the bottom. Choose one to see what it called.`;
  byId("main").replaceChildren(card("Who queued it", about, "wide", chosenLine(), keys(), place, notes()));
  drawAll();
  shown[0].made.on("click", (hit) => choose({ frame: hit.value[3] }));
  root.dataset.ready = "yes";
}

/** Fills in what does not depend on the choice, adds the listeners, and draws the page. */
function start() {
  byId("title").textContent = printable(data.words.title);
  byId("about").append(printable(data.words.about));
  byId("foot").append(
    printable(
      `Made by biotrail ${data.words.version}, with Apache ECharts ${echarts.version} (Apache License 2.0).`,
    ),
  );
  byId("by").append(...Object.entries(WEIGHTS).map(([key, [name]]) => el("option", { value: key }, name)));
  byId("by").addEventListener("change", (event) => choose({ by: event.target.value }));
  byId("find").addEventListener("input", (event) => choose({ find: event.target.value }));
  byId("whole").addEventListener("click", () => choose({ frame: 0, find: "" }));
  byId("choice").addEventListener("submit", (event) => event.preventDefault());
  byId("theme").addEventListener("click", () => choose({ theme: theme() === "dark" ? "light" : "dark" }));
  dark.addEventListener("change", render);
  window.addEventListener("hashchange", render);
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(render, 100);
  });
  render();
}

/** Prints in the light theme, at the width of a sheet. */
window.addEventListener("beforeprint", () => {
  root.dataset.theme = "light";
  drawAgain(PAPER_WIDTH);
});
window.addEventListener("afterprint", () => {
  root.dataset.theme = theme();
  drawAgain("auto");
});

start();
