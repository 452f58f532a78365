# SPDX-License-Identifier: Apache-2.0
"""One read of 200 µs, in the layouts in which tools print it; docs/inputs.md lists them."""

from dataclasses import dataclass

ISSUE = "block_rq_issue: 8,0 R 4096 () 1000 + 8 [dd]"
COMPLETE = "block_rq_complete: 8,0 R () 1000 + 8 [0]"
PAIRS_ISSUE = (
    "block_rq_issue: dev=8388608 sector=1000 nr_sector=8 bytes=4096 ioprio=0 rwbs=R comm=dd cmd="
)
PAIRS_COMPLETE = (
    "block_rq_complete: dev=8388608 sector=1000 nr_sector=8 error=0 ioprio=0 rwbs=R cmd="
)
SCRIPT = "print them: `perf script --ns -F comm,tid,cpu,time,event,trace`"


@dataclass(frozen=True)
class TextLayout:
    """A layout. name, printed_by: for the document. lines: of the I/O's issue and completion.

    lacks: what is not known then, for the document. refused: words of the error, if it cannot be
    read.
    """

    name: str
    printed_by: str
    lines: tuple[str, ...]
    lacks: str = ""
    refused: str = ""

    @property
    def text(self) -> bytes:
        return ("\n".join(self.lines) + "\n").encode()


READ = [
    TextLayout(
        "the usual one",
        "`cat trace`, `cat trace_pipe`",
        (
            "# tracer: nop",
            f"              dd-500     [000] .....    10.000000: {ISSUE}",
            f"          <idle>-0       [000] d.h..    10.000200: {COMPLETE}",
        ),
    ),
    TextLayout(
        "without flags",
        "option `noirq-info`; `trace-cmd report`, with `-t` in nanoseconds",
        (
            "cpus=1",
            f"              dd-500   [000]    10.000000: {ISSUE}",
            f"          <idle>-0     [000]    10.000200: {COMPLETE}",
        ),
    ),
    TextLayout(
        "with processes",
        "option `record-tgid`; systrace, atrace",
        (
            f"              dd-500   (    500) [000] .....    10.000000: {ISSUE}",
            f"          <idle>-0     (-------) [000] d.h..    10.000200: {COMPLETE}",
        ),
    ),
    TextLayout(
        "latency format of trace-cmd",
        "`trace-cmd report -l`",
        (
            f"      dd-500     0.....    10.000000: {ISSUE}",
            f"  <idle>-0       0d.h..    10.000200: {COMPLETE}",
        ),
    ),
    TextLayout(
        "latency format of ftrace",
        "option `latency-format`; crash",
        (
            "# latency: 0 us, #2/2, CPU#0 | (M:PREEMPT(none) VP:0, KP:0, SP:0 HP:0 #P:2)",
            f"      dd-500       0..... 66500us : {ISSUE}",
            f"  <idle>-0         0d.h.. 66700us+: {COMPLETE}",
        ),
        "times are those since the buffer was begun",
    ),
    TextLayout(
        "latency format, verbose",
        "options `latency-format` and `verbose`",
        (
            "              dd     500   0 0 00000000 00000000 [2bc64185] 66.500ms (+0.006ms): "
            + ISSUE,
            "          <idle>       0   0 16 00000000 00000001 [2bc6418c] 66.700ms (+0.001ms): "
            + COMPLETE,
        ),
        "times are those since the buffer was begun",
    ),
    TextLayout(
        "in the kernel's log",
        "`ftrace_dump_on_oops`, in `dmesg`",
        (
            "[  101.000001] Dumping ftrace buffer:",
            "[  101.000002] ---------------------------------",
            f"[  101.000003]       dd-500       0..... 66500us : {ISSUE}",
            f"[  101.000004]   <idle>-0         0d.h.. 66700us+: {COMPLETE}",
        ),
        "times are those since the buffer was begun",
    ),
    TextLayout(
        "fields by name, of ftrace",
        "option `fields` (Linux 6.4 and later)",
        (
            "              dd-500     [000] .....    10.000000: block_rq_issue: dev=0x800000 "
            "(8388608) sector=0x3e8 (1000) nr_sector=0x8 (8) bytes=0x1000 (4096) ioprio=0x0 (0) "
            "rwbs=R comm=dd cmd=",
            "          <idle>-0       [000] d.h..    10.000200: block_rq_complete: dev=0x800000 "
            "(8388608) sector=0x3e8 (1000) nr_sector=0x8 (8) error=0x0 (0) ioprio=0x0 (0) rwbs=R "
            "cmd=",
        ),
    ),
    TextLayout(
        "fields by name, of trace-cmd",
        "`trace-cmd report -R`; Perfetto's conversion to systrace",
        (
            f"              dd-500   [000]    10.000000: {PAIRS_ISSUE}",
            f"          <idle>-0     [000]    10.000200: {PAIRS_COMPLETE}",
        ),
    ),
    TextLayout(
        "fields whose format was not understood",
        "trace-cmd and perf older than the kernel",
        (
            "              dd-500   [000]    10.000000: "
            + PAIRS_ISSUE.replace(": ", ": [FAILED TO PARSE] "),
            "          <idle>-0     [000]    10.000200: "
            + PAIRS_COMPLETE.replace(": ", ": [FAILED TO PARSE] "),
        ),
    ),
    TextLayout(
        "differences beside the times",
        "`trace-cmd report --ts-diff`",
        (
            f"              dd-500   [000]    10.000000: {ISSUE}",
            f"          <idle>-0     [000]    10.000200: (+200)   {COMPLETE}",
        ),
    ),
    TextLayout(
        "events among functions, with times",
        "tracer `function_graph` with the options `funcgraph-abstime` and `funcgraph-proc`",
        (
            "#     TIME       CPU  TASK/PID         DURATION                  FUNCTION CALLS",
            "   10.000000 |   0)     dd-500    |               |  submit_bio() {",
            f"   10.000000 |   0)     dd-500    |               |    /* {ISSUE} */",
            "   10.000010 |   0)     dd-500    |   5.000 us    |  }",
            f"   10.000200 |   0)   <idle>-0    |               |    /* {COMPLETE} */",
        ),
        "names of threads are cut",
    ),
    TextLayout(
        "of perf",
        "`perf script`, with `--ns`, `--reltime`, `--header`, `-F +pid`",
        (
            f"              dd   500 [000]    10.000000:                 block:{ISSUE}",
            f"         swapper     0 [000]    10.000200:              block:{COMPLETE}",
        ),
    ),
    TextLayout(
        "of perf, with periods",
        "`perf script -F +period`, and beside events that are sampled",
        (
            f"              dd   500 [000]    10.000000:          1      block:{ISSUE}",
            f"         swapper     0 [000]    10.000200:          1   block:{COMPLETE}",
        ),
    ),
    TextLayout(
        "of perf, without CPUs",
        "`perf script -F comm,tid,time,event,trace`",
        (
            f"              dd   500    10.000000: block:{ISSUE}",
            f"         swapper     0    10.000200: block:{COMPLETE}",
        ),
        "CPUs are not known",
    ),
    TextLayout(
        "systrace's page",
        "`systrace.py -o FILE.html`, not compressed",
        (
            "<!DOCTYPE html>",
            *("<script>var a = 1;</script>" for _ in range(300)),
            '<script class="trace-data" type="application/text">',
            "# tracer: nop",
            f"   dd-500   (  500) [000] ...1    10.000000: {ISSUE}",
            f"   <idle>-0 (-----) [000] d.h1    10.000200: {COMPLETE}",
            "</script></body></html>",
        ),
    ),
    TextLayout(
        "quoted",
        "a mail's answer, `> ` before each line",
        (
            f">               dd-500     [000] .....    10.000000: {ISSUE}",
            f">           <idle>-0       [000] d.h..    10.000200: {COMPLETE}",
        ),
    ),
    TextLayout(
        "of Windows",
        "an editor there: CR and LF, the mark of UTF-8, other lines around",
        (
            "\ufeffHello,\r",
            "\r",
            "this is the trace:\r",
            f"              dd-500     [000] .....    10.000000: {ISSUE}\r",
            f"          <idle>-0       [000] d.h..    10.000200: {COMPLETE}\r",
            "\r",
            "-- \r",
        ),
    ),
]
REFUSED = [
    TextLayout(
        "events among functions, without times",
        "tracer `function_graph`",
        (
            "# tracer: function_graph",
            " 0)               |  submit_bio() {",
            f" 0)               |    /* {ISSUE} */",
            " 0)   5.000 us    |  }",
            f" 0)               |    /* {COMPLETE} */",
        ),
        refused="print it with ftrace's options funcgraph-abstime and funcgraph-proc, or use the "
        "tracer nop",
    ),
    TextLayout(
        "numbers alone",
        "options `raw`, `hex`, `bin`",
        (
            "# tracer: nop",
            "11472 0 734413189465 type: 2097",
            "11472 0 734413195845 type: 2096",
        ),
        refused="print it without: `echo noraw > trace_options`, `echo nohex > trace_options`",
    ),
    TextLayout(
        "without times and threads",
        "option `nocontext-info`",
        ("# tracer: nop", ISSUE, COMPLETE),
        refused="print it with: `echo context-info > trace_options`",
    ),
    TextLayout(
        "counts for times",
        "trace clock `counter` or `x86-tsc`",
        (
            f"              dd-500     [000] .....   10000000: {ISSUE}",
            f"          <idle>-0       [000] d.h..   10000200: {COMPLETE}",
        ),
        refused="record with trace_clock 'mono'",
    ),
    TextLayout(
        "of the tracer blk",
        "`echo blk > current_tracer`",
        (
            "# tracer: blk",
            "              dd-500     [000] .....    10.000000:   8,0    D   R 1000 + 8 [dd]",
            "          <idle>-0       [000] d.h..    10.000200:   8,0    C   R 1000 + 8 [0]",
        ),
        refused="print it as blktrace's data: options `bin` and `nocontext-info` "
        "(docs/blktrace.md)",
    ),
    TextLayout(
        "differences for times",
        "`perf script --deltatime`",
        (
            f"              dd   500 [000]     0.000000: block:{ISSUE}",
            f"         swapper     0 [000]     0.000200: block:{COMPLETE}",
            f"              dd   500 [000]     0.000050: block:{ISSUE}",
            f"         swapper     0 [000]     0.000300: block:{COMPLETE}",
        ),
        refused=SCRIPT.replace("them", "times"),
    ),
    TextLayout(
        "of perf, without threads",
        "`perf script -F comm,cpu,time,event,trace`",
        (
            f"              dd [000]    10.000000: block:{ISSUE}",
            f"         swapper [000]    10.000200: block:{COMPLETE}",
        ),
        refused=SCRIPT,
    ),
    TextLayout(
        "of perf, without times",
        "`perf script -F comm,tid,cpu,event,trace`",
        (
            f"              dd   500 [000] block:{ISSUE}",
            f"         swapper     0 [000] block:{COMPLETE}",
        ),
        refused=SCRIPT,
    ),
    TextLayout(
        "of perf trace",
        "`perf trace -e 'block:*'`",
        (
            "     0.000 dd/500 block:block_rq_issue(dev: 8388608, sector: 1000)",
            "     0.200 swapper/0 block:block_rq_complete(dev: 8388608, sector: 1000)",
        ),
        refused="record with `perf record -a -e 'block:*'`",
    ),
    TextLayout(
        "of babeltrace",
        "`babeltrace2 DIRECTORY`, for LTTng",
        (
            "[12:34:56.000000000] (+?.?????????) host block_rq_issue: { cpu_id = 0 }, { dev = "
            "8388608, sector = 1000, nr_sector = 8 }",
        ),
        refused="give the directory of LTTng's trace itself",
    ),
]


def table() -> str:
    """The layouts as a table for docs/inputs.md."""
    rows = ["| layout | printed by | read |", "|---|---|---|"]
    rows += [f"| {one.name} | {one.printed_by} | yes{_lacks(one)} |" for one in READ]
    rows += [f"| {one.name} | {one.printed_by} | no: {one.refused} |" for one in REFUSED]
    return "\n".join(rows)


def _lacks(one: TextLayout) -> str:
    return f"; {one.lacks}" if one.lacks else ""
