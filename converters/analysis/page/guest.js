// SPDX-License-Identifier: Apache-2.0
// The card of a guest whose host was recorded, too.

/** Stages inside the guest's D2C → colour. */
const GUEST_STAGES = {
  "to host": "#8a63d2",
  "host queue": "#d1a400",
  "host device": "#2f7fc1",
  "from host": "#1f9e77",
};
/** Times of a stage: [title, key]. */
const GUEST_TIMES = [
  ["mean", "mean_ns"],
  ["p50", "p50_ns"],
  ["p99", "p99_ns"],
  ["max", "max_ns"],
];

/** Returns the card with the stages of the guest's requests on its host; null without a host. */
function guestCard() {
  if (!report.guest) return null;
  const name = (row) => `${row.disk} on ${row.behind}, ${row.operation}`;
  const timed = report.guest.rows.filter((row) => row.stages.length);
  const bars = timed.map((row) => ({
    operation: name(row),
    stages: row.stages.map((stage) => ({ ...stage, count: row.linked })),
  }));
  const rows = report.guest.rows.flatMap((row, place) =>
    row.stages.map((stage, at) => ({
      disk: at ? "" : name(row),
      stage,
      path: `guest.rows.${place}.stages.${at}`,
    })),
  );
  const left = report.guest.left_out;
  return card(
    "Inside the guest's D2C",
    `Where its requests were, by the host's clock, of all devices and operations.${
      left ? ` ${plural(left, "more row is", "more rows are")} not in this page.` : ""
    }`,
    "wide",
    bars.length
      ? stageBars(bars, {
          label: "share of the guest's D2C by stage",
          colours: GUEST_STAGES,
          meanings: report.guest.stages,
        })
      : null,
    rows.length
      ? table(
          [
            ["disk on the host's device", (row) => el("td", { class: "name left" }, row.disk), "left"],
            ["stage", (row) => row.stage.stage, "left"],
            ["share", (row) => figure(row.stage.share, "share", `${row.path}.share`)],
            ...GUEST_TIMES.map(([title, key]) => [title, (row) => figure(row.stage[key], "ns", `${row.path}.${key}`)]),
          ],
          rows,
        )
      : null,
    el(
      "ul",
      {},
      report.guest.words.map((line) => el("li", {}, line)),
    ),
  );
}
