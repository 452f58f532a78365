// SPDX-License-Identifier: Apache-2.0
// Cards with figures and tables. Each figure has its path in the data as `data-path`.

const report = data.report;

/** Whether the log has block I/O, and not pairs of events alone. */
const hasIo = report.devices.length > 0 || !report.pairs.length;

const TIMES = [
  ["mean", "mean_ns"],
  ["p50", "p50_ns"],
  ["p90", "p90_ns"],
  ["p99", "p99_ns"],
  ["p99.9", "p99_9_ns"],
  ["max", "max_ns"],
];

/** Returns the columns of a summary's times. of(row): returns [summary, its path in the data]. */
function timeColumns(of) {
  return TIMES.map(([title, key]) => [
    title,
    (row) => {
      const [times, path] = of(row);
      return times.count ? figure(times[key], "ns", `${path}.${key}`) : "–";
    },
  ]);
}

function tile(what, ...figures) {
  return el("div", { class: "tile" }, el("b", {}, ...figures), el("span", { class: "what" }, what));
}

/** Counters of bytes that were acted on without moving data, and what to call them. */
const RANGES = [
  ["discarded", "discarded_bytes"],
  ["zeroed", "zeroed_bytes"],
  ["erased", "erased_bytes"],
];

/** Returns the columns of RANGES that any row has something in. of: row → [group, its path]. */
function rangeColumns(rows, of) {
  return RANGES.filter(([, key]) => rows.some((row) => of(row)[0][key])).map(([title, key]) => [
    title,
    (row) => {
      const [group, path] = of(row);
      return group[key] ? figure(group[key], "bytes", `${path}.${key}`) : "–";
    },
  ]);
}

function summaryCard(view) {
  const { group, path } = view;
  const at = (key, kind) => figure(group[key], kind, `${path}.${key}`);
  const latency = (key) =>
    group.latency.count ? figure(group.latency[key], "ns", `${path}.latency.${key}`) : "–";
  const tiles = [
    tile("I/Os (bios)", at("ios", "count")),
    tile("data", at("bytes", "bytes")),
    ...RANGES.filter(([, key]) => group[key]).map(([title, key]) => tile(title, at(key, "bytes"))),
    tile("I/Os a second", at("ios_per_s", "rate")),
    tile("throughput", at("bytes_per_s", "byterate")),
    tile("median latency (Q2C)", latency("p50_ns")),
    tile("p99", latency("p99_ns")),
    tile("p99.9", latency("p99_9_ns")),
    tile("slowest", latency("max_ns")),
    tile("requests", figure(group.requests.ios, "count", `${path}.requests.ios`)),
    tile("merged", at("merged", "count")),
    tile("split", at("split", "count")),
    tile("requeues", at("requeues", "count")),
    tile("failed", at("failed", "count")),
    tile("without an end in the log", at("unfinished", "count")),
  ];
  if (group.tries) tiles.push(tile("failed NOWAIT attempts", at("tries", "count")));
  const inFlight = view.operation ? group.depth : view.of && view.of.depth;
  if (view.of && inFlight) {
    const depth = `${view.operation ? path : view.devicePath}.depth.queue`;
    const { queue } = inFlight;
    tiles.push(
      tile("in flight, mean", figure(queue.mean, "mean", `${depth}.mean`)),
      tile("in flight, most", figure(queue.max, "count", `${depth}.max`)),
      tile("active", figure(queue.active_ns, "ns", `${depth}.active_ns`)),
      tile("idle", figure(queue.idle_ns, "ns", `${depth}.idle_ns`)),
    );
  }
  const errors = Object.entries(group.errors);
  return card(
    "Summary",
    view.title,
    "wide",
    el("div", { class: "tiles" }, tiles),
    errors.length
      ? el(
          "p",
          { class: "warn" },
          "Failed: ",
          errors.map(([name, n]) => `${name} ${format.count(n)}`).join(", "),
        )
      : null,
    doubtText(group, "bios"),
    doubtText(group.requests, "requests"),
    data.words.missing.length
      ? el("p", { class: "warn" }, "Some of it is missing from the log: see “Loss and certainty”.")
      : null,
  );
}

/** Returns the rows of the table of stages: of each group the latency, its stages, and D2C of requests. */
function stageRows(view) {
  return view.groups.flatMap(({ group, path }) => {
    const device = group.requests.stages.findIndex((stage) => stage.stage === "D2C");
    return [
      {
        name: group.operation || "all",
        stage: "Q2C (all stages)",
        share: null,
        times: group.latency,
        path: `${path}.latency`,
      },
      ...group.stages.map((times, place) => ({
        name: "",
        stage: times.stage,
        share: times.share,
        times,
        path: `${path}.stages.${place}`,
      })),
      device < 0
        ? null
        : {
            name: "",
            stage: "D2C of requests",
            share: null,
            times: group.requests.stages[device],
            path: `${path}.requests.stages.${device}`,
          },
    ].filter(Boolean);
  });
}

/** Returns the column of what the recorder's own programs took of each stage; none where it is not known. */
function recorderColumns(rows) {
  if (!rows.some((row) => row.times.recorder_ns)) return [];
  const cell = ({ times, path }) =>
    times.recorder_ns ? figure(times.recorder_ns, "ns", `${path}.recorder_ns`) : "";
  return [["the recorder's own", cell]];
}

function stageCard(view) {
  const rows = stageRows(view);
  const timed = view.groups.map(({ group }) => group).filter((group) => group.stages.length);
  const mark = (stage) =>
    STAGE_COLOURS[stage] ? el("span", { class: "key", style: { background: STAGE_COLOURS[stage] } }) : null;
  return card(
    "Where the time goes",
    "The stages of all bios from queue to completion add up to their latency (Q2C).",
    "wide",
    timed.length ? stageBars(timed) : null,
    table(
      [
        ["operation", (row) => row.name, "left"],
        [
          "stage",
          (row) => el("span", { title: data.words.stages[row.stage] || "" }, mark(row.stage), row.stage),
          "left",
        ],
        ["count", (row) => figure(row.times.count, "count", `${row.path}.count`)],
        ["share", (row) => (row.share === null ? "" : figure(row.share, "share", `${row.path}.share`))],
        ...timeColumns((row) => [row.times, row.path]),
        ...recorderColumns(rows),
      ],
      rows,
    ),
    view.groups.flatMap(({ group }) => [
      doubtText(group, `${group.operation || "all"} bios`),
      doubtText(group.requests, `${group.operation || "all"} requests`),
    ]),
  );
}

/** Returns the columns of latencies in doubt; none if no row has any. of: row → [group, its path]. */
function doubtColumns(rows, of) {
  if (!rows.some((row) => of(row)[0].latency.with_doubtful)) return [];
  const cell = (kind, value, path) => (row) => {
    const [group, at] = of(row);
    const every = group.latency.with_doubtful;
    return every ? figure(value(group, every), kind, `${at}.${path}`) : "–";
  };
  return [
    ["in doubt", cell("count", (group) => group.doubtful, "doubtful")],
    ["mean with", cell("ns", (_, every) => every.mean_ns, "latency.with_doubtful.mean_ns")],
    ["p99 with", cell("ns", (_, every) => every.p99_ns, "latency.with_doubtful.p99_ns")],
  ];
}

/** Returns the bytes that a group of a list read, or moved otherwise. */
function moved(row, read) {
  const all = row.by_operation || [];
  const bytes = sum(all.filter((one) => one.operation === "read").map((one) => one.bytes));
  return read ? bytes : row.bytes - bytes;
}

/** Returns a table of groups, with a bar behind each number of I/Os, relative to the largest one. */
function groupTable(rows, path, names) {
  const most = Math.max(...rows.map((row) => row.ios), 1);
  const bar = (row, place) => {
    const cell = el("td", { class: "meter" }, figure(row.ios, "count", `${path}.${place}.ios`));
    cell.style.setProperty("--part", `${(100 * row.ios) / most}%`);
    return cell;
  };
  const at = new Map(rows.map((row, place) => [row, place]));
  return table(
    [
      ...names,
      ["I/Os", bar],
      ["data", (row, place) => figure(row.bytes, "bytes", `${path}.${place}.bytes`)],
      ["read", (row) => (moved(row, true) ? format.bytes(moved(row, true)) : "–")],
      ["written", (row) => (moved(row, false) ? format.bytes(moved(row, false)) : "–")],
      ["data/s", (row, place) => figure(row.bytes_per_s, "byterate", `${path}.${place}.bytes_per_s`)],
      ...rangeColumns(rows, (row) => [row, `${path}.${at.get(row)}`]),
      ["total", (row, place) => figure(row.latency.sum_ns, "ns", `${path}.${place}.latency.sum_ns`)],
      [
        "share",
        (row, place) =>
          row.time_share === undefined ? "–" : figure(row.time_share, "share", `${path}.${place}.time_share`),
      ],
      ...timeColumns((row) => [row.latency, `${path}.${at.get(row)}.latency`]),
      ["failed", (row, place) => (row.failed ? figure(row.failed, "count", `${path}.${place}.failed`) : "–")],
      ...(rows.some((row) => row.by_workers)
        ? [
            [
              "by workers",
              (row, place) =>
                row.by_workers ? figure(row.by_workers, "count", `${path}.${place}.by_workers`) : "–",
            ],
          ]
        : []),
      ...doubtColumns(rows, (row) => [row, `${path}.${at.get(row)}`]),
    ],
    rows,
  );
}

const known = (name) => (name === null || name === undefined ? "not known" : name);

/** Returns what people call a process: its title, behind its thread's name if that is another. */
const called = (process, title) => (title.includes(process) ? title : `${process} (${title})`);

/** Returns a function that makes the cell with a row's name, in the field `key`. */
function named(key) {
  return (row) =>
    el(
      "td",
      { class: "name left", title: printable(known(row[key])) },
      row.others ? "all others" : row[key] === null && row.writer ? row.writer : known(row[key]),
    );
}

/** Returns the cell with what people call a process, and for which cgroup workers queued. */
function processName(row) {
  if (row.others || row.process === null || !(row.title || row.cgroup_id)) return named("process")(row);
  let text = row.process;
  if (row.cgroup_id) text = `${row.process} for ${row.cgroup || `cgroup ${row.cgroup_id}`}`;
  else text = called(row.process, row.title);
  return el("td", { class: "name left", title: printable(text) }, printable(text));
}

/** Returns the cell with a file's path, or with the reason for which there is no file. */
function fileName(row) {
  const why = {
    device: `(${row.device}: metadata, or the device itself)`,
    "not known": "(file not known: direct I/O, buffers)",
    "no data": "(no data)",
    "no I/O": "(no file: queued no I/O)",
    swap: "(swap)",
    journal: "(journal)",
    metadata: "(metadata)",
  };
  const several = row.inodes > 1 ? ` (${format.count(row.inodes)} inodes)` : "";
  const also = row.label || row.container_file;
  const label = also ? ` (${also})` : "";
  const path = row.file === null ? why[row.file_kind] : `${row.file}${label}${several}`;
  const text = row.others ? "all others" : printable(path);
  return el("td", { class: "name left", title: text }, text);
}

/** Returns the card of a list of the report's groups; null if it is empty. names: columns with names. */
function whoCard(title, list, names, all) {
  const rows = report[list];
  const left = data.left_out[list];
  const note = [
    all,
    left ? `${plural(left, "more is", "more are")} not in this page: see report --json.` : "",
  ]
    .filter(Boolean)
    .join(" ");
  return rows.length ? card(title, note, "wide", groupTable(rows, list, names)) : null;
}

function deviceCard() {
  const whole = (key, kind) => (row, place) => figure(row.total[key], kind, `devices.${place}.total.${key}`);
  const deep = (kind, path) => (row, place) =>
    figure(
      path.split(".").reduce((at, key) => at && at[key], row),
      kind,
      `devices.${place}.${path}`,
    );
  const event =
    (...keys) =>
    (row) =>
      format.count(sum(keys.map((key) => row.events[key] || 0)));
  return card(
    "Devices",
    data.left_out.devices ? `${format.count(data.left_out.devices)} more are not in this page.` : "",
    "wide",
    table(
      [
        ["device", (row) => el("td", { class: "name left" }, row.device), "left"],
        ["on", (row) => row.stacked_on.join(", ") || "–", "left"],
        ["I/Os", whole("ios", "count")],
        ["data", whole("bytes", "bytes")],
        ["data/s", whole("bytes_per_s", "byterate")],
        ...rangeColumns(report.devices, (row) => [row.total, `devices.${report.devices.indexOf(row)}.total`]),
        ["in flight", deep("mean", "depth.queue.mean")],
        ["most", deep("count", "depth.queue.max")],
        ["in device", deep("mean", "depth.issued.mean")],
        ["most", deep("count", "depth.issued.max")],
        ["active", deep("ns", "depth.queue.active_ns")],
        ["idle", deep("ns", "depth.queue.idle_ns")],
        ["merges", event("back_merges", "front_merges", "request_merges")],
        ["splits", event("splits")],
        ["requeues", event("requeues")],
        ["sequential at Q", deep("share", "pattern.q2q.sequential_share")],
        ["at D", deep("share", "pattern.d2d.sequential_share")],
        [
          "flushes",
          (row, place) =>
            row.flushes ? figure(row.flushes.requests, "count", `devices.${place}.flushes.requests`) : "–",
        ],
        [
          "bios a flush",
          (row, place) =>
            row.flushes
              ? figure(row.flushes.bios_per_request, "mean", `devices.${place}.flushes.bios_per_request`)
              : "–",
        ],
      ],
      report.devices,
      true,
    ),
  );
}

function stackedCard() {
  if (!report.stacked.length) return null;
  const p = (key, figureOf) => (row, place) =>
    row[key].count ? figure(row[key][figureOf], "ns", `stacked.${place}.${key}.${figureOf}`) : "–";
  return card(
    "Stacked devices",
    "What became of bios on the device below: before it was queued there, there, and back.",
    "wide",
    table(
      [
        ["device", (row) => row.device, "left"],
        ["below", (row) => row.below, "left"],
        ["operation", (row) => row.operation, "left"],
        ["lower bios", (row, place) => figure(row.children, "count", `stacked.${place}.children`)],
        ["down p50", p("to_child", "p50_ns")],
        ["p99", p("to_child", "p99_ns")],
        ["there p50", p("child", "p50_ns")],
        ["p99", p("child", "p99_ns")],
        ["back p50", p("from_child", "p50_ns")],
        ["p99", p("from_child", "p99_ns")],
      ],
      report.stacked,
    ),
  );
}

function certaintyCard() {
  const { missing, certainty } = data.words;
  const all = sum(Object.values(report.certainty)) || 1;
  return card(
    "Loss and certainty",
    "",
    "wide",
    missing.length
      ? el(
          "div",
          { class: "warn" },
          "Missing from the log:",
          el(
            "ul",
            {},
            missing.map((line) => el("li", {}, line)),
          ),
        )
      : el("p", {}, "Nothing is missing from the log."),
    hasIo
      ? table(
          [
            ["bios", ([name]) => name, "left"],
            ["meaning", ([name]) => certainty[name] || "", "left"],
            ["count", ([name, n]) => figure(n, "count", `certainty.${name}`)],
            ["share", ([, n]) => format.share(n / all)],
          ],
          Object.entries(report.certainty).filter(([, n]) => n),
        )
      : null,
    el(
      "p",
      { class: "note" },
      `Counts, sums, means and extremes are exact; a percentile is at most ${format.share(report.percentiles.relative_error).replace(" %", "")} % of its value off. ` +
        `${plural(report.percentiles.bios_without, "bio")} without a beginning or an end in the log ${report.percentiles.bios_without === 1 ? "is" : "are"} counted, but in no latency.`,
    ),
  );
}
