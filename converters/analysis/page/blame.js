// SPDX-License-Identifier: Apache-2.0
// Cards on who waited for whom, and where the time of calls went: a bar and a row for each victim.

/** Culprits with a colour and a column of their own at most, those with most time first. */
const MOST_CULPRITS = 5;
const CULPRIT_COLOURS = ["#c8452d", "#8a63d2", "#d1a400", "#c2478f", "#a0674b"];
/** Kinds of parts but others' I/O → [name shown, colour, meaning]; before and behind the culprits. */
const BLAME_BEFORE = {
  "own service": ["own service", "#1f9e77", "what I/O of its class takes without company"],
  "own other I/O": ["own other I/O", "#2f7fc1", "waiting behind other I/O of the victim itself"],
};
const BLAME_BEHIND = {
  "device alone": ["device alone", "#8d99a6", "took longer though nothing else was there"],
  unknown: ["unknown", "#b9bec6", "others' I/O was there, and whether it mattered cannot be told"],
  running: ["running", "#3aa6a0", "on a CPU"],
  CPU: ["waits for a CPU", "#e0b000", "ready to run, without a CPU"],
  limit: ["limit", "#7d4e24", "held back by the I/O limit of a cgroup"],
  journal: ["journal", "#4a5a9e", "waiting for a commit, where no I/O explains it"],
  waiting: ["other waits", "#c9ced6", "all other waits"],
};
const BEHIND_OTHERS = "behind others";

/** Returns the culprits with a column of their own, those with most time first. */
function culpritsOf(victims) {
  const time = new Map();
  for (const part of victims.flatMap((one) => one.parts)) {
    if (part.culprit !== null && part.culprit !== "(others)") {
      time.set(part.culprit, (time.get(part.culprit) || 0) + part.wait_ns);
    }
  }
  const order = [...time].sort((a, b) => b[1] - a[1]);
  return order.slice(0, MOST_CULPRITS).map(([name]) => name);
}

/**
 * Returns [chart, table] of the parts of the rows' time: of victims, or of their calls. path: of the rows in the data.
 * name: of a row. before: columns between the name and the parts.
 */
function blameParts(rows, path, name, before) {
  const named = culpritsOf(rows);
  const place = (part) => {
    if (part.culprit === null) return part.kind;
    return named.includes(part.culprit) ? `behind ${part.culprit}` : BEHIND_OTHERS;
  };
  const columns = {
    ...BLAME_BEFORE,
    ...Object.fromEntries(
      named.map((who, at) => [`behind ${who}`, [`behind ${who}`, CULPRIT_COLOURS[at], `waiting behind I/O of ${who}`]]),
    ),
    [BEHIND_OTHERS]: [BEHIND_OTHERS, "#5c6672", "waiting behind I/O of all that have no column"],
    ...BLAME_BEHIND,
  };
  const of = (column) => Object.fromEntries(Object.entries(columns).map(([key, one]) => [key, one[column]]));
  const bars = rows.map((row) => {
    const time = new Map();
    for (const part of row.parts) time.set(place(part), (time.get(place(part)) || 0) + part.wait_ns);
    const stages = [...time].map(([stage, ns]) => ({ stage, ns, share: ns / Math.max(row.wait_ns, 1) }));
    return { operation: name(row), row, stages };
  });
  const used = Object.keys(columns).filter((key) =>
    bars.some((bar) => bar.stages.some((one) => one.stage === key && one.ns)),
  );
  const share = (key) => (bar) => {
    const found = bar.stages.find((one) => one.stage === key);
    return found && found.ns ? format.share(found.share) : "–";
  };
  return [
    stageBars(bars, {
      label: "share of the victims' time",
      colours: of(1),
      meanings: of(2),
      names: of(0),
      told: (stage) => [
        ["", "share", format.share(stage.share)],
        ["", "time", format.ns(Math.max(stage.ns, 0))],
      ],
    }),
    table(
      [
        ["victim", (bar) => el("td", { class: "name left" }, bar.operation), "left"],
        ...before.map(([title, key, kind]) => [
          title,
          (bar, at) => figure(bar.row[key], kind, `${path}.${at}.${key}`),
        ]),
        ...used.map((key) => [columns[key][0], share(key)]),
      ],
      bars,
    ),
  ];
}

/** Returns the lines as a list. */
const listed = (lines) => el("ul", {}, lines.map((line) => el("li", {}, line)));

/** Returns the card with who waited for whom; null without, or where nobody waited. */
function blameCard() {
  const blame = report.blame;
  if (!blame || !blame.victims.length) return null;
  const left = data.left_out.blame_victims;
  return card(
    "Whose I/O made whose I/O wait",
    `Shares of each victim's time from Q to C, whatever is chosen above; by ${blame.by.victim}. ${
      left ? `${plural(left, "more victim is", "more victims are")} not in this page: see biotrail blame.` : ""
    }`,
    "wide",
    ...blameParts(blame.victims, "blame.victims", (row) => row.name, [
      ["I/Os", "ios", "count"],
      ["time", "wait_ns", "ns"],
      ["mean", "mean_ns", "ns"],
      ["p99", "p99_ns", "ns"],
    ]),
    listed(data.blame_words.said),
    ...data.blame_words.notes.map((line) => el("p", { class: "note" }, line)),
  );
}

/** Returns the card with where the time of calls went, by whose I/O; null if calls were not timed. */
function blamedCallsCard() {
  const calls = report.blame ? report.blame.calls : [];
  if (!calls.length) return null;
  const left = data.left_out.blame_calls;
  return card(
    "Where the time of calls went",
    `Of calls that queued I/O or waited for it; by ${report.blame.by.victim}. ${
      left ? `${plural(left, "more is", "more are")} not in this page: see biotrail blame.` : ""
    }`,
    "wide",
    ...blameParts(calls, "blame.calls", (row) => `${row.call} of ${row.name}`, [
      ["calls", "calls", "count"],
      ["time", "wait_ns", "ns"],
      ["mean", "mean_ns", "ns"],
    ]),
    listed(data.blame_words.of_calls),
  );
}
