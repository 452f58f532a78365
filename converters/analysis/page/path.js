// SPDX-License-Identifier: Apache-2.0
// Cards of the path beside the block layer: system calls, and the way from the issue to the completion.

/** Parts of a call's time: name in the data → [name shown, colour, meaning]. */
const CALL_PARTS = {
  running: ["running", "#1f9e77", "on a CPU"],
  runnable: ["to run", "#d1a400", "ready to run, without a CPU"],
  own_io: ["own I/O", "#2f7fc1", "blocked, with a bio in flight that the call had queued"],
  other_io: ["other I/O", "#8a63d2", "blocked for I/O that others do: a journal commit, a page, a lock"],
  otherwise: ["otherwise", "#a0674b", "blocked by something else: a pipe, a timer, a futex"],
  undivided: ["not divided", "#8d99a6", "the log has no waits"],
};
/** Calls with a bar in the chart at most, those with most time first. */
const MOST_BARS = 12;

/** Returns one column of CALL_PARTS: its values by the part's name. */
function ofParts(column) {
  return Object.fromEntries(Object.entries(CALL_PARTS).map(([name, values]) => [name, values[column]]));
}

/** Returns the name of a row of calls, as the command line shows it. */
const callName = (call) => (call.io ? call.call : `${call.call} (no I/O)`);

/** Returns the card with the system calls and the division of their time; null if none were timed. */
function callsCard() {
  if (!report.calls.length) return null;
  const bars = report.calls
    .filter((call) => call.parts.length)
    .slice(0, MOST_BARS)
    .map((call) => ({
      operation: callName(call),
      stages: call.parts.map((part) => ({ ...part, stage: part.part })),
    }));
  const used = Object.keys(CALL_PARTS).filter((name) =>
    report.calls.some((call) => call.parts.some((part) => part.part === name)),
  );
  const share = (name) => (call, place) => {
    const at = call.parts.findIndex((part) => part.part === name);
    return at < 0 ? "–" : figure(call.parts[at].share, "share", `calls.${place}.parts.${at}.share`);
  };
  const errors = (call) =>
    Object.entries(call.errors)
      .map(([name, n]) => `${name} ${format.count(n)}`)
      .join(", ") || "–";
  const count = (key, kind) => (call, place) =>
    call[key] ? figure(call[key], kind, `calls.${place}.${key}`) : "–";
  const until = report.calls_until_ns;
  const notes = [
    "From entry to return, without calls that were served from the cache; the parts of a call's time add up to it. Of all devices and operations.",
    until === null
      ? ""
      : `Timed in the first ${format.ns(Math.max(until - report.time.begin_ns, 0))} only (--call-budget).`,
    report.calls.some((call) => call.call.endsWith(" (wait)"))
      ? "(wait): not timed, a wait alone."
      : "",
    data.left_out.calls ? `${plural(data.left_out.calls, "more is", "more are")} not in this page.` : "",
  ];
  const at = new Map(report.calls.map((call, place) => [call, place]));
  return card(
    "System calls that queued I/O or waited",
    notes.filter(Boolean).join(" "),
    "wide",
    bars.length
      ? stageBars(bars, {
          label: "share of the calls' time by part",
          colours: ofParts(1),
          meanings: ofParts(2),
          names: ofParts(0),
        })
      : null,
    table(
      [
        ["call", (call) => el("td", { class: "name left" }, callName(call)), "left"],
        ["count", count("count", "count")],
        ["failed", errors],
        ["data", count("bytes", "bytes")],
        ["bios", count("bios", "count")],
        [
          "total",
          (call, place) =>
            call.time.count ? figure(call.time.sum_ns, "ns", `calls.${place}.time.sum_ns`) : "–",
        ],
        ...timeColumns((call) => [call.time, `calls.${at.get(call)}.time`]),
        ...used.map((name) => [CALL_PARTS[name][0], share(name)]),
      ],
      report.calls,
    ),
  );
}

/** Returns the card with what the calls waited for; null if that was not recorded. */
function waitsCard() {
  if (!report.waits.length) return null;
  const at = new Map(report.waits.map((row, place) => [row, place]));
  const left = data.left_out.waits;
  return card(
    "What calls waited for",
    `Waits of calls by the kernel's functions in which their threads waited. ${
      left ? `${plural(left, "more is", "more are")} not in this page: see report --json.` : ""
    }`,
    "wide",
    table(
      [
        ["call", (row) => el("td", { class: "name left" }, row.call), "left"],
        ["waited for", (row) => row.reason, "left"],
        ["count", (row, place) => figure(row.count, "count", `waits.${place}.count`)],
        ["total", (row, place) => figure(row.sum_ns, "ns", `waits.${place}.sum_ns`)],
        ["of calls", (row, place) => figure(row.share, "share", `waits.${place}.share`)],
        ...(report.waits.some((row) => row.no_file_ns)
          ? [
              [
                "no file",
                (row, place) =>
                  row.no_file_ns ? figure(row.no_file_ns, "ns", `waits.${place}.no_file_ns`) : "–",
              ],
            ]
          : []),
        ...timeColumns((row) => [row, `waits.${at.get(row)}`]),
      ],
      report.waits,
    ),
  );
}

/** Returns the card with the bios that cgroups' limits held before Q; null without any. */
function heldCard() {
  if (!report.held.length) return null;
  const at = new Map(report.held.map((row, place) => [row, place]));
  const left = data.left_out.held;
  const rate = (value, place, key, unit) => [
    figure(value, unit, `held.${place}.${key}`),
    "/s",
  ];
  return card(
    "Held by a cgroup's limit before Q",
    `Bios that blk-throttle (io.max) held until a worker of the kernel queued them: in no latency. ${
      left ? `${plural(left, "more is", "more are")} not in this page: see report --json.` : ""
    }`,
    "wide",
    table(
      [
        ["limit of", (row) => el("td", { class: "name left" }, row.cgroup ?? "(not known)"), "left"],
        ["device", (row) => row.device, "left"],
        ["operation", (row) => row.operation, "left"],
        [
          "limit",
          (row, place) =>
            el(
              "td",
              {},
              row.bps === null ? null : rate(row.bps, place, "bps", "bytes"),
              row.bps === null || row.iops === null ? null : ", ",
              row.iops === null ? null : rate(row.iops, place, "iops", "count"),
            ),
        ],
        ["bios", (row, place) => figure(row.bios, "count", `held.${place}.bios`)],
        ["most of", (row) => (row.process === null ? "–" : `${row.process} (${row.pid})`), "left"],
        ["known", (row, place) => figure(row.time.count, "count", `held.${place}.time.count`)],
        [
          "total",
          (row, place) =>
            row.time.count ? figure(row.time.sum_ns, "ns", `held.${place}.time.sum_ns`) : "–",
        ],
        ...timeColumns((row) => [row.time, `held.${at.get(row)}.time`]),
      ],
      report.held,
    ),
  );
}

/** Returns the card with the steps from issue to completion, of the chosen device or all; null without any. */
function completionCard(view) {
  const rows = report.devices.flatMap((device, place) =>
    view.of && view.of !== device
      ? []
      : device.completions.flatMap((way, which) =>
          way.steps.map((step, row) => ({
            device: which || row ? "" : device.device,
            way: row ? "" : way.way,
            step,
            path: `devices.${place}.completions.${which}.steps.${row}`,
          })),
        ),
  );
  if (!rows.length) return null;
  return card(
    "From issue to completion",
    "D2C of requests by the way in which they were completed, of all operations: the interrupt, the softirq, the completion.",
    "wide",
    table(
      [
        ["device", (row) => row.device, "left"],
        ["completed in", (row) => row.way, "left"],
        ["step", (row) => row.step.step, "left"],
        ["count", (row) => figure(row.step.count, "count", `${row.path}.count`)],
        ["share", (row) => figure(row.step.share, "share", `${row.path}.share`)],
        ...timeColumns((row) => [row.step, row.path]),
      ],
      rows,
    ),
  );
}
