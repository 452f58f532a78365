// SPDX-License-Identifier: Apache-2.0
// The slowest I/Os as a list; each one opens to show its stages, events, and the device's other I/O.

function slowWhat(io) {
  const where = io.sector !== null && io.bytes ? ` at sector ${io.sector}` : "";
  const size = io.bytes ? ` of ${format.bytes(io.bytes)}` : "";
  const whom = io.for_tid === null ? "" : ` for ${known(io.for_comm)} (${io.for_tid})`;
  const name = io.title ? called(io.comm, io.title) : known(io.comm);
  const who = io.tid === null ? "task unknown" : `${name} (${io.tid})${whom}`;
  return `${io.partition || io.device} ${io.operation}${io.flags ? ` ${io.flags}` : ""}${size}${where}, ${who}`;
}

/** Returns a bar of an I/O's stages. */
function stageParts(io) {
  const parts = io.stages.map((stage) => {
    const part = el("i", { title: `${stage.stage} ${format.ns(stage.ns)} (${format.share(stage.share)})` });
    part.style.background = STAGE_COLOURS[stage.stage] || "#888";
    part.style.width = `${100 * stage.share}%`;
    return part;
  });
  return el("div", { class: "parts" }, parts);
}

function longestStage(io) {
  return io.stages.reduce((best, stage) => (!best || stage.ns > best.ns ? stage : best), null);
}

/** Returns a group of I/Os as text: "3 (2 write 8.0 KiB, 1 read 4.0 KiB; by fio 3)", or "none". */
function crowd(group) {
  if (!group || !group.ios) return "none";
  const ops = Object.entries(group.operations).map(
    ([op, of]) => `${format.count(of.ios)} ${op} ${format.bytes(of.bytes)}`,
  );
  const tasks = Object.entries(group.tasks).map(([task, n]) => `${task} ${format.count(n)}`);
  return `${format.count(group.ios)} (${ops.join(", ")}; by ${tasks.join(", ")})`;
}

function moment(at) {
  return (
    `${crowd(at.waiting)} waiting, ${crowd(at.in_device)} in the device; ` +
    `${plural(at.requests_allocated, "request")} in use, ${format.count(at.requests_in_device)} in the device`
  );
}

/** Returns a list of what else the device had in flight; null without surroundings. */
function aroundList(around) {
  if (!around) return null;
  const rows = [
    ["when queued", moment(around.when_queued)],
    ["when issued", around.when_issued && moment(around.when_issued)],
    ["ahead of it", around.ahead.ios && crowd(around.ahead)],
    ["overtook it", around.overtook_it.ios && crowd(around.overtook_it)],
    ["it overtook", around.it_overtook.ios && crowd(around.it_overtook)],
    ["completed meanwhile", crowd(around.completed_meanwhile)],
    [
      "cache flushes",
      around.flushes.length + around.flushes_left_out &&
        format.count(around.flushes.length + around.flushes_left_out),
    ],
  ].filter(([, text]) => text);
  return el(
    "dl",
    {},
    rows.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]),
  );
}

function stageTable(slow, path) {
  return table(
    [
      [
        "stage",
        (row) =>
          el(
            "span",
            {},
            el("span", { class: "key", style: { background: STAGE_COLOURS[row.stage] || "#888" } }),
            row.stage,
          ),
        "left",
      ],
      ["time", (row, place) => figure(row.ns, "ns", `${path}.io.stages.${place}.ns`)],
      ["share", (row) => format.share(row.share)],
      ["meaning", (row) => data.words.stages[row.stage] || "", "left"],
    ],
    slow.io.stages,
  );
}

function eventTable(slow, path) {
  const requests = new Map(slow.requests.map((request, place) => [request.number, place + 1]));
  const about = (event) =>
    [
      event.request === null ? "" : `request ${requests.get(event.request) || event.request}`,
      event.tag === null ? "" : `tag ${event.tag}`,
      event.comm ? `by ${event.comm}` : "",
      event.status && event.status !== "OK" ? event.status : "",
    ]
      .filter(Boolean)
      .join(", ");
  const plain = (nanoseconds) =>
    `${format.count(Math.floor(nanoseconds / 1000))}.${String(Math.abs(nanoseconds) % 1000).padStart(3, "0")} µs`;
  return table(
    [
      [
        "since queued",
        (event, place) =>
          el(
            "span",
            { "data-value": event.offset_ns, "data-path": `${path}.events.${place}.offset_ns` },
            plain(event.offset_ns),
          ),
      ],
      ["cpu", (event) => (event.cpu === null ? "–" : event.cpu)],
      ["event", (event) => `${event.letter} ${event.name}`, "left"],
      ["device", (event) => event.device, "left"],
      ["sector", (event) => (event.sector === null ? "" : event.sector)],
      ["data", (event) => (event.bytes ? format.bytes(event.bytes) : "")],
      ["about", about, "left"],
    ],
    slow.events,
  );
}

/** Returns a heading and a list of related I/Os, null if there are none. left: how many are left out. */
function familyList(title, ios, left) {
  if (!ios.length) return null;
  return [
    el("h3", {}, `${title} (${format.count(ios.length + (left || 0))})`),
    el(
      "ul",
      {},
      ios.map((io) =>
        el("li", {}, `${io.doubtful ? "time in doubt" : format.ns(io.waited_ns)} ${slowWhat(io)}`),
      ),
      left ? el("li", {}, `and ${format.count(left)} more`) : null,
    ),
  ];
}

/** Returns the details of a slow I/O. path: of the I/O in the data. */
function slowInside(slow, path) {
  const { io } = slow;
  const marks = [
    io.under_way ? "had not completed when the log ended" : "",
    io.status !== "OK" ? `ended with ${io.status}` : "",
    io.fragments > 1
      ? `split into ${format.count(io.fragments)} pieces: the stages are of the one that ended last`
      : "",
    io.requeues ? plural(io.requeues, "requeue") : "",
    io.certainty !== "exact" && !io.under_way
      ? `${io.certainty}: ${data.words.certainty[io.certainty] || ""}`
      : "",
  ].filter(Boolean);
  return el(
    "div",
    { class: "inside" },
    el(
      "p",
      { class: "note" },
      `${slow.time ? `queued ${slow.time}, ` : ""}${format.ns(Math.max(slow.begin_ns - timeline.begin_ns, 0))} after the log's beginning; bio ${io.number}` +
        `${io.cgroup ? `; cgroup ${io.cgroup}` : ""}${io.file ? `; file ${io.file}` : ""}${marks.length ? `; ${marks.join("; ")}` : ""}`,
    ),
    timelineOf(slow, path),
    stageTable(slow, path),
    aroundList(slow.surroundings),
    el(
      "h3",
      {},
      `Events${slow.events_left_out ? ` (${format.count(slow.events_left_out)} in the middle are left out)` : ""}`,
    ),
    eventTable(slow, path),
    familyList("Other I/Os of its requests", slow.mates, slow.mates_left_out),
    familyList("Above it", slow.parents, slow.parents_left_out),
    familyList("Below it", slow.children, slow.children_left_out),
  );
}

/** Returns the row of a slow I/O; its details are made when the row is opened. path: of the I/O in the data. */
function slowRow(slow, path) {
  const longest = longestStage(slow.io);
  const row = el(
    "details",
    {},
    el(
      "summary",
      {},
      el("span", { class: "took" }, figure(slow.io.waited_ns, "ns", `${path}.io.waited_ns`)),
      stageParts(slow.io),
      el(
        "span",
        { class: "what" },
        `${longest ? `${longest.stage} ${format.share(longest.share)} · ` : ""}${slowWhat(slow.io)}${slow.io.under_way ? ", not complete" : ""}`,
      ),
    ),
  );
  const fill = () => {
    if (row.open && row.children.length === 1) row.append(slowInside(slow, path));
  };
  row.addEventListener("toggle", fill);
  return row;
}

function slowCard(view) {
  const all = data.slow.ios.map((slow, place) => [slow, `slow.ios.${place}`]);
  const everything = !view.device && !view.operation;
  const rows = everything
    ? all.slice(0, data.slow.slowest)
    : all
        .filter(
          ([{ io, parents }]) =>
            (view.device ? io.device === view.device : !parents.length) &&
            (!view.operation || io.operation === view.operation),
        )
        .sort(([a], [b]) => b.io.waited_ns - a.io.waited_ns);
  const { counts } = data.slow;
  const left = [
    counts.under_way ? `${plural(counts.under_way, "I/O")} had not completed when the log ended.` : "",
    counts.without_latency
      ? `${plural(counts.without_latency, "I/O")} without a known latency left out.`
      : "",
    counts.doubtful
      ? `${plural(counts.doubtful, "I/O")} left out whose latency is in doubt (several I/Os fit one completion).`
      : "",
    data.left_out.slow ? `${plural(data.left_out.slow, "more is", "more are")} not in this page.` : "",
  ]
    .filter(Boolean)
    .join(" ");
  const details = rows.map(([slow, path]) => slowRow(slow, path));
  const button = el("button", { type: "button" }, "open or close all");
  const openAll = (open) =>
    details.forEach((row) => {
      row.open = open;
    });
  button.addEventListener("click", () => openAll(!details.every((row) => row.open)));
  openAll(view.slow === "open");
  const which = everything
    ? `The slowest ${rows.length} of ${plural(counts.ios, "I/O")}; I/Os on lower devices are with those above.`
    : `Of these, what is among the slowest ${data.slow.slowest} of the log, and the slowest few of each device and operation.`;
  return card(
    "Slowest I/Os",
    `${which} Open one for its events and what was in its way. ${left}`,
    "wide",
    rows.length ? button : null,
    details,
  );
}
