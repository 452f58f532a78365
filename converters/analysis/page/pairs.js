// SPDX-License-Identifier: Apache-2.0
// Cards of pairs of events: latencies by value of --by, and the keys with the most time.

/** Returns a sentence on rows that the page does not have; "" for none. */
const moreThan = (left) =>
  left ? `${plural(left, "more is", "more are")} not in this page: see report --json.` : "";

/** Returns the card with the latencies of each declared pair; null if the log has none. */
function pairsCard() {
  if (!report.pairs.length) return null;
  const rows = report.pairs.flatMap((pair, place) => [
    { pair, name: pair.name, of: "all", time: pair.time, path: `pairs.${place}.time` },
    ...pair.groups.map((group, which) => ({
      pair,
      name: "",
      of: `${pair.by} = ${group.text}`,
      time: group.time,
      path: `pairs.${place}.groups.${which}.time`,
    })),
  ]);
  const left = report.pairs.reduce((sum, pair) => sum + (pair.groups_cut || 0), data.left_out.pairs || 0);
  const share = (row) => (row.pair.time.sum_ns ? row.time.sum_ns / row.pair.time.sum_ns : 0);
  return card(
    "Pairs of events",
    `From the first event to the second with the same key. ${moreThan(left)}`,
    "wide",
    table(
      [
        ["pair", (row) => el("td", { class: "name left" }, row.name), "left"],
        ["of", (row) => row.of, "left"],
        ["count", (row) => figure(row.time.count, "count", `${row.path}.count`)],
        ["total", (row) => figure(row.time.sum_ns, "ns", `${row.path}.sum_ns`)],
        ["share", (row) => `${(100 * share(row)).toFixed(1)} %`],
        ...timeColumns((row) => [row.time, row.path]),
      ],
      rows,
    ),
  );
}

/** Returns the card with the keys of pairs that have the most time; null if there are none. */
function pairKeysCard() {
  const rows = report.pairs.flatMap((pair, place) =>
    pair.slowest_keys.map((key, which) => ({
      name: which ? "" : pair.name,
      key,
      share: pair.time.sum_ns ? key.sum_ns / pair.time.sum_ns : 0,
      path: `pairs.${place}.slowest_keys.${which}`,
    })),
  );
  if (!rows.length) return null;
  const known = report.pairs.reduce((sum, pair) => sum + pair.keys_known, 0);
  return card(
    "Keys of pairs with the most time",
    moreThan(known - rows.length),
    "wide",
    table(
      [
        ["pair", (row) => el("td", { class: "name left" }, row.name), "left"],
        ["key", (row) => row.key.text, "left"],
        ["count", (row) => figure(row.key.count, "count", `${row.path}.count`)],
        ["total", (row) => figure(row.key.sum_ns, "ns", `${row.path}.sum_ns`)],
        ["share", (row) => `${(100 * row.share).toFixed(1)} %`],
        ["max", (row) => figure(row.key.max_ns, "ns", `${row.path}.max_ns`)],
      ],
      rows,
    ),
  );
}
