// SPDX-License-Identifier: Apache-2.0
// The card with the report's findings in a few sentences, and the I/O that they are about.

function verdictCard() {
  const said = report.verdict.slice(0, data.shown_sentences);
  const more = report.verdict.length - said.length;
  return card(
    "In short",
    "Of the whole report, whatever is chosen above.",
    "wide",
    ...data.scope.map((line) => el("p", { class: "warn" }, printable(line))),
    el(
      "ul",
      {},
      said.map((one) =>
        el("li", { title: one.rule }, printable(`${one.sentence}. `), el("i", {}, printable(`Next: ${one.next}.`))),
      ),
    ),
    more > 0 ? el("p", { class: "note" }, `${plural(more, "more sentence")} in report --json.`) : null,
  );
}
