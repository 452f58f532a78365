# SPDX-License-Identifier: Apache-2.0
"""Which write-backs the table of who dirtied pages knows, and how many it charges wrongly.

    python -m benchmarks.dirty_table [--memory 64] [--table 64] [--millions 100]

The table's own arithmetic (bpf/dirty_slots.h) in a simulation of a machine with 4 KiB folios: 64
writers make folios dirty that are clean, by turns; the one that is dirty for longest is written
back when so many are. A write-back is known where a slot has its tag, and wrong where that slot
was written for another folio; that its writer's time may exclude it is left out. Needs clang, no
rights.
"""

import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

from biotrail.recorder.probes.maps.path_maps import dirty_shift, dirty_table

HEADER = Path(__file__).parents[1] / "bpf/dirty_slots.h"
DIRTY_GIB = (1.0, 4.0, 8.0, 12.8)
"""Dirty at once; 12.8 is 20 % of 64 (vm.dirty_ratio)."""
SOURCE = f"""
#include <stdlib.h>
typedef unsigned int __u32;
typedef unsigned long long __u64;
#include "{HEADER}"
#define VMEMMAP 0xffffea0000000000ULL
#define SLAB 0xffff888100000000ULL
#define WRITERS 64
#define RUN 1024 /* folios that a stream takes from one place: 4 MiB */

static __u64 state = 88172645463325252ULL;
static __u64 draw(void) /* xorshift64 */
{{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}}

/* Dirties `steps` of `folios`, `most` at once; any: at random. out: write-backs, known, wrong. */
int simulate(__u64 slots, __u64 shift, __u64 folios, __u64 most, __u64 steps, int any, __u64 *out)
{{
	__u64 *table = calloc(slots, 8), *queue = calloc(most, 8), *inode = calloc(folios, 8);
	unsigned char *dirty = calloc(folios, 1), *writer = calloc(folios, 1);
	__u64 next[WRITERS] = {{0}}, left[WRITERS] = {{0}}, file[WRITERS] = {{0}};

	if (!table || !queue || !inode || !dirty || !writer)
		return -1;
	for (__u64 step = 0; step < steps; step++) {{
		__u64 who = draw() % WRITERS, number, tag, time = step >> 9, address;

		if (step >= most) {{
			__u64 found, mine;

			number = queue[step % most];
			address = VMEMMAP + number * 64;
			tag = bt_dirty_tag(address, inode[number]);
			found = table[bt_dirty_place(address, 0, shift)];
			if (!bt_has_tag(found, tag))
				found = table[bt_dirty_place(address, 1, shift)];
			dirty[number] = 0;
			mine = writer[number];
			out[0]++;
			if (bt_has_tag(found, tag)) {{
				out[1]++;
				out[2] += (found & 0x7fff) != mine;
			}}
		}}
		if (any || !left[who]) {{
			next[who] = draw() % folios;
			left[who] = RUN;
			file[who] = SLAB + draw() % (1 << 20) * 1024;
		}}
		while (dirty[next[who] %= folios])
			next[who]++;
		number = next[who]++;
		left[who]--;
		inode[number] = file[who];
		dirty[number] = 1;
		writer[number] = who;
		queue[step % most] = number;
		address = VMEMMAP + number * 64;
		tag = bt_dirty_tag(address, inode[number]);
		{{
			__u64 *slot = &table[bt_dirty_place(address, 0, shift)];

			if (*slot && !bt_has_tag(*slot, tag)) {{
				__u64 *second = &table[bt_dirty_place(address, 1, shift)];

				if (bt_takes_second(*slot, *second, tag, time))
					slot = second;
			}}
			*slot = bt_dirty_word(tag, time, who);
		}}
	}}
	free(table), free(queue), free(inode), free(dirty), free(writer);
	return 0;
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--memory", type=int, default=64, help="GiB of memory")
    parser.add_argument("--table", type=int, help="MiB, a power of two; without: as recorded")
    parser.add_argument("--millions", type=int, default=100, help="of folios made dirty")
    chosen = parser.parse_args()
    if chosen.millions < 4:
        parser.error("--millions: nothing would be written back; at least 4")
    size = chosen.table << 20 if chosen.table else dirty_table(chosen.memory << 18)
    u64 = ctypes.c_uint64
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "simulate.c")
        source.write_text(SOURCE, encoding="utf-8")
        built = source.with_suffix(".so")
        subprocess.run(["clang", "-shared", "-fPIC", "-O2", "-o", built, source], check=True)
        simulate = ctypes.CDLL(str(built)).simulate
    simulate.argtypes = [u64, u64, u64, u64, u64, ctypes.c_int, ctypes.POINTER(u64)]
    print(f"{'dirty GiB':>10}{'order':>10}{'write-backs':>13}{'not known':>12}{'wrong':>7}")
    for gib in DIRTY_GIB:
        for random in (0, 1):
            out = (u64 * 3)()
            folios, most = chosen.memory << 18, int(gib * (1 << 18))
            steps = chosen.millions * 10**6
            if simulate(size // 8, dirty_shift(size), folios, most, steps, random, out):
                raise MemoryError("no memory for the simulation")
            total, known, wrong = out
            order = "random" if random else "in order"
            share = (total - known) / total
            print(f"{gib:>10}{order:>10}{total:>13,}{share:>12.4%}{wrong:>7}")


if __name__ == "__main__":
    main()
