// SPDX-License-Identifier: Apache-2.0
// Numbers in the format of the command line, and elements whose content is text, never markup.
"use strict";

window.addEventListener("error", (event) => {
  document.documentElement.dataset.error = String(event.message);
});

const data = JSON.parse(document.getElementById("data").textContent);

/** Returns x with this number of decimals, ties rounded to even, as Python's format does. */
function fixed(x, digits) {
  const longer = x.toFixed(digits + 60); // toFixed is exact
  if (!/^50*$/.test(longer.slice(-60))) return x.toFixed(digits);
  const scale = 10 ** digits;
  const below = Math.floor(x * scale);
  return ((below % 2 === 0 ? below : below + 1) / scale).toFixed(digits);
}

/** Returns x with three significant digits, without trailing zeros. */
function three(x) {
  if (x === 0) return "0";
  const digits = Math.max(2 - Math.floor(Math.log10(Math.abs(x))), 0);
  return String(Number(fixed(x, digits)));
}

/** Functions that format a number: ns, bytes, count, rate (per second), byterate, share (0 to 1), mean. */
const format = {
  ns(x) {
    for (const [unit, scale] of [
      ["ns", 1],
      ["µs", 1e3],
      ["ms", 1e6],
    ]) {
      if (x < scale * 999.5) return `${three(x / scale)} ${unit}`;
    }
    const seconds = x / 1e9;
    if (seconds < 100) return `${three(seconds)} s`;
    const whole = Math.round(seconds);
    return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  },
  bytes(x) {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (Math.abs(x) < 1024) return `${fixed(x, unit === "B" ? 0 : 1)} ${unit}`;
      x /= 1024;
    }
    return `${fixed(x, 1)} TiB`;
  },
  count: (x) => fixed(x, 0).replace(/\B(?=(\d{3})+$)/g, ","),
  rate: (x) => (x < 100 ? three(x) : format.count(x)) + "/s",
  byterate: (x) => `${format.bytes(x)}/s`,
  share: (x) => `${fixed(x * 100, 1)} %`,
  mean: (x) => fixed(x, 2),
};

/** Returns text with each control or invisible formatting character replaced by U+FFFD. */
function printable(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, "\uFFFD");
}

/** Returns a new element. children: elements, text, or lists of these; null is left out. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") Object.assign(made.style, value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    made.append(child instanceof Node ? child : printable(child));
  }
  return made;
}

/** Returns a formatted figure; null gives "–". kind: key of `format`. path: of the figure in the data. */
function figure(value, kind, path) {
  const text = value === null || value === undefined ? "–" : format[kind](value);
  return el("span", { "data-value": value, "data-kind": kind, "data-path": path }, text);
}

function plural(number, one, many) {
  return `${format.count(number)} ${number === 1 ? one : many || one + "s"}`;
}

/** Returns which latencies of a group are in doubt, mean and p99 with them in; null if none are. */
function doubtText(group, what) {
  const every = group.latency.with_doubtful;
  if (!every) return null;
  const they = group.doubtful === 1 ? "it" : "them";
  const text =
    `${format.count(group.doubtful)} of ${plural(every.count, "latency", "latencies")} of ${what} ` +
    `${group.doubtful === 1 ? "is" : "are"} in doubt (several I/Os fit one completion) and in no figure; ` +
    `with ${they} in: mean ${format.ns(every.mean_ns)}, p99 ${format.ns(every.p99_ns)}`;
  return el("p", { class: "warn" }, text);
}

const sum = (values) => values.reduce((a, b) => a + b, 0);

/** Returns a card: heading, note ("" or null: none), then children. size: "wide" or "small". */
function card(title, note, size, ...children) {
  return el(
    "section",
    { class: size },
    el("h2", {}, title),
    note ? el("p", { class: "note" }, note) : null,
    ...children,
  );
}

/** Returns a table. columns: [title, cell(row, place), class]; cell returns an element or text. */
function table(columns, rows, broad) {
  const head = el(
    "tr",
    {},
    columns.map(([title, , kind]) => el("th", { class: kind, scope: "col" }, title)),
  );
  const body = rows.map((row, place) =>
    el(
      "tr",
      {},
      columns.map(([, cell, kind]) => {
        const made = cell(row, place);
        return made instanceof Node && made.tagName === "TD" ? made : el("td", { class: kind }, made);
      }),
    ),
  );
  return el(
    "div",
    { class: "scroll" },
    el("table", { class: broad ? "broad" : undefined }, el("thead", {}, head), el("tbody", {}, body)),
  );
}
