// SPDX-License-Identifier: Apache-2.0
// The timeline of a slow I/O: its stages, the I/Os that the device had before it, its requests, the other
// bios of these requests, its parents and children. Each bar has its path in the data as `data-path`.

const MOST_TICKS = 6;
const CLOSE = 0.03;
/** Time shown before the I/O was queued, at most, as a share of the I/O's own time. */
const EARLIER = 0.5;

/** Returns [from, to], the times between which lanes are drawn, ns since the I/O was queued. */
function rangeOf(slow, lanes) {
  const to = Math.max(slow.io.waited_ns, 1) * 1.02;
  const first = Math.min(0, ...lanes.flatMap((lane) => lane.bars.map((bar) => bar.start)));
  return [Math.max(first, -EARLIER * to), to];
}

const placeIn = ([from, to], at) => (Math.min(Math.max(at, from), to) - from) / (to - from);

/** Returns the element of a bar. start, ns: since the I/O was queued; text is shown if it fits. */
function barElement(range, { start, ns, colour, kind, title, path, text }) {
  const [left, right] = [placeIn(range, start), placeIn(range, start + ns)];
  const made = el(
    "i",
    { class: [kind, start < range[0] ? "earlier" : ""].join(" ").trim(), title, "data-path": path },
    text && right - left > 0.08 ? text : null,
  );
  Object.assign(made.style, { left: `${100 * left}%`, width: `${100 * (right - left)}%` });
  if (colour) made.style.backgroundColor = colour;
  return made;
}

/** Returns the times (ns) of the axis's ticks: about MOST_TICKS round numbers. */
function ticks([from, to]) {
  const rough = (to - from) / MOST_TICKS;
  const scale = 10 ** Math.floor(Math.log10(rough));
  const step = scale * [1, 2, 5, 10].find((one) => one * scale >= rough);
  const found = [];
  for (let at = Math.ceil(from / step); at * step <= to; at += 1) found.push(at * step);
  return found;
}

const signed = (ns) => (ns < 0 ? `−${format.ns(-ns)}` : format.ns(ns));

/**
 * Returns {marks, letters}: the times of Q, D and C (or the log's end), and their letters with times;
 * letters that would touch are joined.
 */
function moments(range, { io }) {
  const marks = [
    ["Q", 0],
    ["D", io.issue_ns],
    [io.under_way ? "end of log" : "C", io.waited_ns],
  ].filter(([, at]) => at !== null);
  const found = [];
  for (const [letter, at] of marks) {
    const last = found[found.length - 1];
    if (last && placeIn(range, at) - placeIn(range, last.at) < CLOSE) last.letters += ` ${letter}`;
    else found.push({ letters: letter, at });
  }
  return { marks: marks.map(([, at]) => at), letters: found };
}

/** Returns a line of texts above or below the lanes. texts: [ns, text]. */
function labels(range, texts, kind) {
  return el(
    "div",
    { class: `lane ${kind}`, "aria-hidden": "true" },
    el("span", { class: "of" }),
    el(
      "div",
      { class: "track" },
      texts.map(([at, text]) => {
        const place = placeIn(range, at);
        return el("span", { class: place > 0.94 ? "last" : null, style: { left: `${100 * place}%` } }, text);
      }),
    ),
  );
}

/** Returns the element of a lane: its name, its bars, and a mark at each time of `marks`. */
function laneElement(range, marks, { name, title, bars, kind }) {
  return el(
    "div",
    { class: `lane ${kind || ""}`.trim() },
    el("span", { class: "of", title }, name),
    el(
      "div",
      { class: "track" },
      bars.map((bar) => barElement(range, bar)),
      marks.map((at) => el("b", { style: { left: `${100 * placeIn(range, at)}%` } })),
    ),
  );
}

const spansOf = (io, offset, path, named) =>
  io.stages.map((stage, place) => ({
    start: offset + stage.start_ns,
    ns: stage.ns,
    colour: STAGE_COLOURS[stage.stage] || "#888",
    title: `${stage.stage} ${format.ns(stage.ns)} (${format.share(stage.share)})`,
    path: `${path}.stages.${place}`,
    text: named ? stage.stage : "",
  }));

/** Returns the lane of a related I/O: a mate, a parent or a child. */
function relativeLane(slow, io, path) {
  const offset = io.queue_ns === null ? 0 : io.queue_ns - slow.begin_ns;
  return {
    name: [
      io.device === slow.io.device ? "" : `${io.device} `,
      `${io.operation} `,
      io.bytes ? figure(io.bytes, "bytes", `${path}.bytes`) : "",
      `, ${known(io.comm)}`,
    ],
    title: slowWhat(io),
    bars: spansOf(io, offset, path, false),
  };
}

/** Returns the lane of an I/O issued before this one: hatched from Q to D, then coloured until C. */
function beforeLane(slow, other, path) {
  const until = other.end_ns === null ? slow.io.waited_ns : other.end_ns;
  const issued = other.issue_ns !== null;
  const from = issued ? other.issue_ns : other.queue_ns;
  const told = (ns) => (ns === null ? "not known" : format.ns(ns));
  const waiting = {
    start: other.queue_ns,
    ns: from - other.queue_ns,
    kind: "waiting",
    title: `waiting ${told(other.waited_ns)}`,
    path: `${path}.waited_ns`,
  };
  const there = {
    start: from,
    ns: Math.max(until - from, 0),
    colour: opColour(other.operation, 0),
    title: issued ? `in the device ${told(other.in_device_ns)}` : "under way",
    path: `${path}.in_device_ns`,
  };
  return {
    name: [
      other.ios > 1 ? `${format.count(other.ios)} × ` : "",
      `${other.operation} `,
      other.bytes ? figure(other.bytes, "bytes", `${path}.bytes`) : "",
      `, ${known(other.comm)}`,
    ],
    title: `${other.operation}, bio ${other.number}, ${known(other.comm)}: ${waiting.title}, ${there.title}`,
    bars: issued && waiting.ns > 0 ? [waiting, there] : [there],
  };
}

/** Returns the lane of a request: allocated, in the scheduler, in the device. place: from 0. */
function requestLane(slow, request, place, path) {
  const end = request.complete_ns === null ? slow.io.waited_ns : request.complete_ns;
  const parts = [
    ["start_ns", request.insert_ns === null ? request.issue_ns : request.insert_ns, STAGE_COLOURS.G2I, "allocated"],
    ["insert_ns", request.issue_ns, STAGE_COLOURS.I2D, "in the scheduler"],
    ["issue_ns", end, STAGE_COLOURS.D2C, "in the device"],
  ].filter(([from, to]) => request[from] !== null && to !== null && to >= request[from]);
  return {
    name: [`request ${place + 1}, `, request.bytes ? figure(request.bytes, "bytes", `${path}.bytes`) : request.operation],
    title: `${request.kind} request ${request.number}${request.tag === null ? "" : `, tag ${request.tag}`}`,
    bars: parts.map(([from, to, colour, title]) => ({
      start: request[from],
      ns: to - request[from],
      colour,
      title,
      path: `${path}.${from}`,
    })),
  };
}

/** Returns the lane of the device's flush requests; one without completion goes on to `waited` (ns). */
function flushLane(around, waited, path) {
  return {
    name: "the device's cache flushes",
    bars: around.flushes.map((flush, place) => ({
      start: flush.issue_ns,
      ns: Math.max((flush.complete_ns === null ? waited : flush.complete_ns) - flush.issue_ns, 0),
      colour: STAGE_COLOURS.flush,
      title: "cache flush",
      path: `${path}.${place}`,
    })),
  };
}

/** Returns all lanes of a slow I/O, the I/O's own lane first. path: of the I/O in the data. */
function lanesOf(slow, path) {
  const around = slow.surroundings;
  const several = (list, left) => format.count(list.length + (left || 0));
  const heading = (text) => ({ name: text, bars: [], kind: "heading" });
  const family = (title, name) =>
    slow[name].length
      ? [
          heading(`${title} (${several(slow[name], slow[`${name}_left_out`])})`),
          ...slow[name].map((io, place) => relativeLane(slow, io, `${path}.${name}.${place}`)),
        ]
      : [];
  const [before, left] = around ? [around.before, around.before_left_out] : [[], 0];
  const shown = sum(before.map((one) => one.ios));
  return [
    {
      name: "this I/O",
      title: slowWhat(slow.io),
      bars: spansOf(slow.io, 0, `${path}.io`, true),
      kind: "self",
    },
    ...(slow.requests.length > 1
      ? [
          heading(`its requests (${several(slow.requests, slow.requests_left_out)})`),
          ...slow.requests.map((one, place) => requestLane(slow, one, place, `${path}.requests.${place}`)),
        ]
      : []),
    ...(around && around.flushes.length
      ? [flushLane(around, slow.io.waited_ns, `${path}.surroundings.flushes`)]
      : []),
    ...(before.length
      ? [
          heading(`the device had before it: ${format.count(shown + left)}${left ? `, ${format.count(shown)} shown` : ""}`),
          ...before.map((one, place) => beforeLane(slow, one, `${path}.surroundings.before.${place}`)),
        ]
      : []),
    ...family("others in its requests", "mates"),
    ...family("above it", "parents"),
    ...family("below it", "children"),
  ];
}

/** Returns the timeline of a slow I/O; null if it has no stages. path: of the I/O in the data. */
function timelineOf(slow, path) {
  const lanes = lanesOf(slow, path);
  if (!lanes[0].bars.length) return null;
  const range = rangeOf(slow, lanes);
  const { marks, letters } = moments(range, slow);
  return el(
    "div",
    { class: "timeline", role: "img", "aria-label": "timeline" },
    labels(
      range,
      letters.map((one) => [one.at, one.letters]),
      "letters",
    ),
    lanes.map((lane) => laneElement(range, marks, lane)),
    labels(
      range,
      ticks(range).map((at) => [at, signed(at)]),
      "axis",
    ),
    el(
      "p",
      { class: "note" },
      "Since it was queued (Q); D: issued, C: completed.",
      slow.surroundings && slow.surroundings.before.length
        ? " What the device had before it is hatched while it waited, and full while it was in the device."
        : "",
    ),
  );
}
