// SPDX-License-Identifier: Apache-2.0
// A fleet's page, by Apache ECharts. The URL's fragment holds the choice: #operation=read&stage=Q2C&figure=p99

const root = document.documentElement;
const byId = (name) => document.getElementById(name);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const { report } = data;
const CHOICES = ["operation", "stage", "figure"];
/** Figure that is shown first, where hosts have it. */
const PREFERRED = { stage: "Q2C", figure: "p99" };

/** Returns the values of operation, stage or figure that hosts have, in the order of the data. */
function values(key) {
  return [...new Set(report.hosts.flatMap((host) => host.figures.map((one) => one[key])))];
}

/** Returns the choice in the URL's fragment; unknown values as if they were not there. */
function chosen() {
  const words = new URLSearchParams(location.hash.slice(1));
  const found = { theme: words.get("theme") || "" };
  for (const key of CHOICES) {
    const all = values(key);
    const asked = [words.get(key), PREFERRED[key]].find((word) => all.includes(word));
    found[key] = asked || all[0] || "";
  }
  return found;
}

/** Changes the choice in the URL's fragment, and draws the page again. */
function choose(changes) {
  const words = Object.entries({ ...chosen(), ...changes }).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(words)}`);
  render();
}

const theme = () => chosen().theme || (dark.matches ? "dark" : "light");

/** Returns the column of a group's work or latency. path: of the figure below the group. */
function column(title, kind, path) {
  const keys = path.split(".");
  return [
    title,
    (row, place) =>
      figure(
        keys.reduce((value, key) => value[key], row),
        kind,
        `report.groups.${place}.${path}`,
      ),
  ];
}

/** Returns a card with the stages of each operation, and one with the percentiles. */
function operationCards() {
  const { operations } = report.total;
  const doubts = () => operations.map((one) => doubtText(one, `${one.operation} bios`));
  return [
    card("Where the time goes", "Of the whole fleet, by operation.", "", stageBars(operations), doubts()),
    card("Percentiles of latency", "Q2C of the whole fleet, by operation.", "", percentileLines(operations), doubts()),
  ];
}

/** Returns the card with each host's value of the chosen figure, the largest first. */
function hostCard() {
  const { operation, stage, figure: name } = chosen();
  const of = (host) =>
    host.figures.find((one) => one.operation === operation && one.stage === stage && one.figure === name);
  const hosts = report.hosts
    .filter((host) => of(host))
    .sort((a, b) => of(b).value_ns - of(a).value_ns);
  const outliers = new Set(
    report.outliers
      .filter((one) => one.operation === operation && one.stage === stage && one.name === name)
      .map((one) => one.host),
  );
  const place = chart(
    `${name} of ${operation} by host`,
    () => ({
      grid: { left: 8, right: 16, top: 12, bottom: 8, containLabel: true },
      tooltip: tooltip("item", (hit) =>
        tip(hit.name, [["", `${operation}, ${stage}, ${name}`, format.ns(of(hosts[hit.dataIndex]).value_ns)]]),
      ),
      xAxis: axis("category", { data: hosts.map((host) => printable(host.host)) }),
      yAxis: timeAxis(),
      series: [
        {
          type: "scatter",
          symbolSize: 9,
          data: hosts.map((host) => ({
            value: of(host).value_ns,
            itemStyle: { color: outliers.has(host.host) ? PALETTE[5] : PALETTE[0] },
          })),
        },
      ],
    }),
    { height: 320 },
  );
  const note = `Each point is a host; red ones differ from their peers (above). ${hosts.length} hosts have this figure.`;
  return card("Hosts", note, "wide", place);
}

/** Returns the card with the hosts that differ from their peers. */
function outlierCard() {
  const compared = report.compared
    ? `${plural(report.compared, "figure")} of hosts compared with the median of their peers.`
    : "Hosts are not compared: too few have recordings that are long enough.";
  const unlike = report.unlike_options.map(({ option, values }) => {
    const each = Object.entries(values).map(([value, count]) => `${value} in ${format.count(count)}`);
    return ` Recorded differently: ${option}: ${each.join(", ")}.`;
  });
  const said = compared + unlike.join("");
  if (!report.outliers.length) return card("Hosts that differ", `${said} None differs.`, "wide");
  const percent = (share) => `${share > 0 ? "+" : ""}${(100 * share).toFixed(1)} %`;
  const columns = [
    ["host", (row) => row.host, "left name"],
    ["operation", (row) => row.operation, "left"],
    ["of", (row) => row.stage, "left"],
    ["figure", (row) => row.name, "left"],
    ["host's", (row, place) => figure(row.b, "ns", `report.outliers.${place}.b`)],
    ["peers'", (row, place) => figure(row.a, "ns", `report.outliers.${place}.a`)],
    ["change", (row) => (row.relative === null ? "–" : percent(row.relative))],
    [
      "interval",
      (row) =>
        row.relative_low === null ? "–" : `${percent(row.relative_low)} to ${percent(row.relative_high)}`,
    ],
    ["spreads", (row) => (row.spreads === null ? "–" : row.spreads.toFixed(1))],
  ];
  return card("Hosts that differ", said, "wide", table(columns, report.outliers));
}

/** Returns the card with the groups of --by. */
function groupCard() {
  const columns = [
    [report.by, (row) => (row.rest ? "(others)" : row.name), "left name"],
    column("hosts", "count", "hosts"),
    column("I/Os", "count", "total.ios"),
    column("data", "bytes", "total.bytes"),
    ...["discarded", "zeroed", "erased"]
      .filter((what) => report.groups.some((row) => row.total[`${what}_bytes`]))
      .map((what) => column(what, "bytes", `total.${what}_bytes`)),
    column("mean", "ns", "total.latency.mean_ns"),
    column("p50", "ns", "total.latency.p50_ns"),
    column("p99", "ns", "total.latency.p99_ns"),
    column("max", "ns", "total.latency.max_ns"),
    ...(report.groups.some((row) => row.total.latency.with_doubtful)
      ? [["in doubt", (row) => doubtText(row.total, "bios") || "–", "left"]]
      : []),
  ];
  return card(`By ${report.by}`, more("groups"), "wide", table(columns, report.groups));
}

/** Returns how many rows of a list are not in the page; "" if all are. */
function more(name) {
  const count = data.left_out[name];
  return count ? `And ${format.count(count)} more, which the JSON has.` : "";
}

/** Returns the card with the first sentence of each host's report; null without any. */
function saidCard() {
  if (!report.said.length) return null;
  const columns = [
    ["host", (row) => row.host, "left name"],
    ["in short", (row) => `${row.sentence}. Next: ${row.next}.`, "left"],
  ];
  return card("In short, by host", more("said"), "wide", table(columns, report.said));
}

/** Returns the card with who waited for whom on all hosts; null if that was not asked for. */
function blameCardOfAll() {
  if (!report.blame.length) return null;
  const victims = report.blame.slice(0, 12);
  const left = report.blame.length - victims.length + (data.left_out.blame || 0);
  return card(
    "Whose I/O made whose I/O wait, on all hosts",
    `Shares of each victim's time from Q to C, added up by name; by ${report.blame_by}. ${
      left ? `And ${format.count(left)} more, which the JSON has, as it has each host's.` : ""
    }`,
    "wide",
    ...blameParts(victims, "blame", (row) => row.name, [
      ["I/Os", "ios", "count"],
      ["time", "wait_ns", "ns"],
      ["mean", "mean_ns", "ns"],
    ]),
  );
}

/** Returns the cards of what is missing. */
function missingCards() {
  const cards = [];
  if (report.incomplete.length) {
    const columns = [
      ["host", (row) => row.host, "left name"],
      ["file", (row) => row.files[0], "left name"],
      ["lost records", (row) => format.count(row.lost_records)],
      ["damage", (row) => row.problems[0] || (row.interrupted ? "no end" : ""), "left"],
    ];
    cards.push(card("Recordings that are not complete", more("incomplete"), "wide", table(columns, report.incomplete)));
  }
  if (report.left_out.length) {
    const columns = [
      ["file", (row) => row.file, "left name"],
      ["why", (row) => row.why, "left"],
    ];
    cards.push(card("Left out", more("left_out"), "wide", table(columns, report.left_out)));
  }
  return cards;
}

/** Draws the page for the choice in the URL's fragment. */
function render() {
  const now = chosen();
  root.dataset.theme = theme();
  byId("theme").textContent = theme() === "dark" ? "☀ light" : "☾ dark";
  for (const key of CHOICES) byId(key).value = now[key];
  forgetAll();
  byId("main").replaceChildren(
    outlierCard(),
    ...[saidCard(), blameCardOfAll()].filter(Boolean),
    ...(report.hosts.some((host) => host.figures.length) ? [hostCard()] : []),
    ...operationCards(),
    groupCard(),
    ...missingCards(),
  );
  drawAll();
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
  for (const key of CHOICES) {
    byId(key).append(...values(key).map((value) => el("option", { value }, value)));
    byId(key).addEventListener("change", (event) => choose({ [key]: event.target.value }));
  }
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
