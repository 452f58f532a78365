/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What programs that add up need: counters that may be interrupted, and slots of histograms. */
#ifndef BIOTRAIL_COUNTING_H
#define BIOTRAIL_COUNTING_H

#include "kernel.h"

/* Atomic: a program that interrupts this one, or took its place, may add to the same counter. */
#define bt_add(counter, number) __sync_fetch_and_add(&(counter), number)
#define bt_count(counter) bt_add(counter, 1)

/* Returns the position of a value's highest bit; 0 for 0. */
static __always_inline __u32 bt_log2(__u64 value)
{
	__u32 result = 0;

	if (value >> 32) {
		value >>= 32;
		result = 32;
	}
	if (value >> 16) {
		value >>= 16;
		result += 16;
	}
	if (value >> 8) {
		value >>= 8;
		result += 8;
	}
	if (value >> 4) {
		value >>= 4;
		result += 4;
	}
	if (value >> 2) {
		value >>= 2;
		result += 2;
	}
	return result + (value >> 1 & 1);
}

#endif
