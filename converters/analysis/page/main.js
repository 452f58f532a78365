// SPDX-License-Identifier: Apache-2.0
// The choice of device and operation, and the page for it. The URL's fragment holds the choice:
// #device=sda&operation=read

const root = document.documentElement;
const byId = (name) => document.getElementById(name);
const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Returns the choice in the URL's fragment; a device or operation that the data has not is "". */
function chosen() {
  const words = new URLSearchParams(location.hash.slice(1));
  const of = report.devices.find((one) => one.device === words.get("device"));
  const operations = of ? of.operations : data.operations;
  const found = operations.find((one) => one.operation === words.get("operation"));
  return {
    device: of ? of.device : "",
    operation: found ? found.operation : "",
    theme: words.get("theme") || "",
    slow: words.get("slow") || "",
  };
}

/** Changes the choice in the URL's fragment, and draws the page again. */
function choose(changes) {
  const words = Object.entries({ ...chosen(), ...changes }).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(words)}`);
  render();
}

/**
 * Returns the view of a choice: the chosen group of figures and its path in the data, and the groups that
 * charts compare (the chosen operation, or all operations with I/O).
 */
function viewOf({ device, operation, slow }) {
  const at = report.devices.findIndex((one) => one.device === device);
  const of = report.devices[at];
  const operations = of ? of.operations : data.operations;
  const base = of ? `devices.${at}.operations` : "operations";
  const place = operations.findIndex((one) => one.operation === operation);
  const whole = { group: of ? of.total : report.total, path: of ? `devices.${at}.total` : "total" };
  const groups = operations.map((group, row) => ({ group, path: `${base}.${row}` }));
  const main = place >= 0 ? groups[place] : whole;
  return {
    device,
    operation,
    slow,
    of,
    operations,
    devicePath: `devices.${at}`,
    ...main,
    groups: place >= 0 ? [main] : groups.filter(({ group }) => group.ios || group.requests.ios),
    title: `${device || "all devices"}, ${operation ? `${operation} operations` : "all operations"}`,
  };
}

function theme() {
  return chosen().theme || (dark.matches ? "dark" : "light");
}

/** Fills a select element: `all` for "", then the values; selects `value`. */
function options(select, values, all, value) {
  select.replaceChildren(
    el("option", { value: "" }, all),
    ...values.map((one) => el("option", { value: one }, one)),
  );
  select.value = value;
}

/** Returns the sum of several histograms, ascending by bucket. */
function together(histograms) {
  const found = new Map();
  for (const bucket of histograms.flat()) {
    const [begin, count] = [Object.values(bucket)[0], bucket.count];
    found.set(begin, { ...bucket, count: count + (found.get(begin) ? found.get(begin).count : 0) });
  }
  return [...found.values()].sort((a, b) => Object.values(a)[0] - Object.values(b)[0]);
}

/** Returns a note if the view is a sum over devices and the page does not have all devices; else "". */
function sumNote(view) {
  return !view.of && data.left_out.devices
    ? ` Of the ${format.count(report.devices.length)} devices in this page.`
    : "";
}

/** Returns the card with seek distances, of the chosen device or of all. */
function patternCard(view) {
  const devices = view.of ? [view.of] : report.devices;
  const sets = [
    ["bios, Q to Q", "q2q", PALETTE[0]],
    ["requests, D to D", "d2d", PALETTE[1]],
  ].map(([name, key, colour]) => {
    const all = devices.map((one) => one.pattern[key]);
    const whole = sum(all.map((one) => one.sequential + one.forward + one.backward));
    const sequential = sum(all.map((one) => one.sequential));
    return {
      name,
      colour,
      whole,
      share: whole ? sequential / whole : 0,
      buckets: together(all.map((one) => one.seek.histogram)),
    };
  });
  const told = sets.map((set) => `${set.name}: ${format.share(set.share)} sequential`).join("; ");
  return card(
    "Seeks",
    `How far from the end of one I/O to the beginning of the next, of all operations. ${told}.${sumNote(view)}`,
    "small",
    sets.some((set) => set.whole)
      ? histogram("seek distances", sets, "bytes", { zero: "sequential", share: true })
      : null,
  );
}

/** Returns the card with what was in flight at each beginning, of the chosen device or of all. */
function metCard(view) {
  const devices = view.of ? [view.of] : report.devices;
  const set = (name, key, colour) => ({
    name,
    colour,
    buckets: together(devices.map((one) => one.depth[key].at_start.histogram)),
  });
  return card(
    "In flight when another began",
    `What each bio found at Q, and each request at D, on its device, of all operations.${sumNote(view)}`,
    "small",
    histogram(
      "in flight at each beginning",
      [set("bios at Q", "queue", PALETTE[0]), set("requests at D", "issued", PALETTE[1])],
      "",
      { share: true, zero: "none" },
    ),
  );
}

function chartCards(view) {
  const { group } = view;
  const course = courseOf(view.device, view.operation);
  const width = `columns of ${format.ns(timeline.interval_ns)}`;
  const timed = view.groups.map((one) => one.group).filter((one) => one.latency.count);
  const lengths = (of) => (of.size.count ? of.size : of.ranges).histogram;
  const sizes = [
    { name: "bios", colour: PALETTE[0], buckets: lengths(group) },
    { name: "requests", colour: PALETTE[1], buckets: lengths(group.requests) },
  ];
  const latencies = [
    { name: "bios, Q to C", colour: PALETTE[0], buckets: group.latency.histogram },
    { name: "requests, start to C", colour: PALETTE[1], buckets: group.requests.latency.histogram },
  ];
  return [
    card(
      "Latency over time",
      `Q2C of bios by when they ended; ${width}, colours by I/Os (logarithmic).`,
      "wide",
      !course
        ? missingCourse()
        : course.heat.some((column) => column.length)
          ? heatMap(course)
          : el("p", { class: "note" }, "No I/O with a latency."),
      doubtText(group, "bios"),
    ),
    card(
      "Percentiles of latency",
      "Q2C of bios. The table of stages has the figures.",
      "small",
      timed.length ? percentileLines(timed) : null,
      timed.map((one) => doubtText(one, `${one.operation || "all"} bios`)),
    ),
    card("Latencies", "By powers of two.", "small", histogram("latencies", latencies, "ns", { share: true }), doubtText(group, "bios")),
    card(
      "I/Os per second",
      `Bios by when they ended; ${width}.`,
      "small",
      throughput(view, "ios", format.rate),
    ),
    card("Throughput", `Their data; ${width}.`, "small", throughput(view, "bytes", format.byterate)),
    card(
      "Queue depth over time",
      view.of
        ? `Bios from Q to C, requests from D to C, of all operations; ${width}.`
        : `Bios from Q to C, mean, of the busiest devices; ${width}. Choose a device for requests and peaks.`,
      "small",
      queueDepth(view),
    ),
    metCard(view),
    card(
      "Sizes",
      "By powers of two.",
      "small",
      histogram("sizes", sizes, "bytes", { share: true, zero: "no data" }),
    ),
    patternCard(view),
  ];
}

/** Draws the page for the choice in the URL's fragment. */
function render() {
  const choice = chosen();
  root.dataset.theme = theme();
  byId("theme").textContent = theme() === "dark" ? "☀ light" : "☾ dark";
  forgetAll();
  const view = viewOf(choice);
  options(
    byId("device"),
    report.devices.map((one) => one.device),
    "all devices",
    choice.device,
  );
  options(
    byId("operation"),
    view.operations.map((one) => one.operation),
    "all operations",
    choice.operation,
  );
  const everything = choice.device || choice.operation ? "Of all devices and operations." : "";
  const cards = hasIo ? ioCards(view, everything) : [pairsCard(), pairKeysCard(), certaintyCard()];
  byId("main").replaceChildren(...cards.filter(Boolean));
  drawAll();
  root.dataset.ready = "yes";
}

/** Returns the cards of block I/O for the choice `view`. everything: says what a card is of. */
function ioCards(view, everything) {
  return [
    verdictCard(),
    summaryCard(view),
    blameCard(),
    blamedCallsCard(),
    stageCard(view),
    guestCard(),
    callsCard(),
    waitsCard(),
    heldCard(),
    completionCard(view),
    pairsCard(),
    pairKeysCard(),
    ...chartCards(view),
    slowCard(view),
    whoCard(
      "Processes",
      "processes",
      [
        ["process", processName, "left"],
        ["pid", (row) => (row.pid === null || row.others ? "–" : row.pid)],
      ],
      `By the thread for which it was queued, where that is known, or that queued it. ${everything}`,
    ),
    whoCard("Cgroups", "cgroups", [["cgroup", named("cgroup"), "left"]], everything),
    whoCard(
      "Files",
      "files",
      [["file", fileName, "left"]],
      `By the page cache whose pages were moved. ${everything}`,
    ),
    whoCard("CPUs", "cpus", [["cpu", named("cpu"), "left"]], `By where I/O was queued. ${everything}`),
    deviceCard(),
    stackedCard(),
    certaintyCard(),
  ];
}

/** Fills in what does not depend on the choice, adds the listeners, and draws the page. */
function start() {
  const { time, log } = report;
  document.title = `${printable(data.log_name)}: biotrail report`;
  byId("title").textContent = printable(data.log_name);
  byId("about").append(
    printable(
      `${log.host}${log.kernel ? `, kernel ${log.kernel}` : ""}; ${time.begin ? `from ${time.begin}, ` : ""}${format.ns(time.span_ns)}${time.of === "events" ? " from the first event to the last" : ""}`,
    ),
  );
  byId("foot").append(
    printable(
      `Made by biotrail ${data.words.version}, with charts by Apache ECharts ${echarts.version} (Apache License 2.0). Log ${log.id}.`,
    ),
  );
  for (const name of ["device", "operation"]) byId(name).parentElement.hidden = !hasIo;
  byId("device").addEventListener("change", (event) => choose({ device: event.target.value }));
  byId("operation").addEventListener("change", (event) => choose({ operation: event.target.value }));
  byId("theme").addEventListener("click", () => choose({ theme: theme() === "dark" ? "light" : "dark" }));
  dark.addEventListener("change", render);
  window.addEventListener("hashchange", render);
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => shown.forEach((one) => one.made.resize()), 100);
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
