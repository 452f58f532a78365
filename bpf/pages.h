/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The head of a compound page, from a word of its tail pages. Plain arithmetic on integers, which
 * a test compiles for its own machine (tests/unit/recorder/probes/test_compiled_headers.py).
 */
#ifndef BIOTRAIL_PAGES_H
#define BIOTRAIL_PAGES_H

/* Masks are for the sizes of compound pages: those of at most 2^32 bytes of struct page. */
#define BT_MASKS 0xffffffff00000000ULL

/* Whether a word has the upper bits alone set, from some bit on, as a mask for alignment has. */
static inline __attribute__((always_inline)) _Bool bt_is_mask(unsigned long long word)
{
	return word >= BT_MASKS && !(-word & (-word - 1));
}

/*
 * Returns the address of the head of the compound page whose page at address `page` has this word.
 * Bit 0 is set in tails alone. Of compound_head the rest is the head's address, wherever that is:
 * with 64 KiB pages and 42-bit addresses, or 16 KiB pages and 36-bit ones, every struct page of an
 * arm64 kernel is above BT_MASKS. Of compound_info (may_be_mask; since 7.1) it is that too, or,
 * where struct page's size is a power of two, a mask that makes the tail's address the head's.
 */
static inline __attribute__((always_inline)) unsigned long long
bt_head_by_word(unsigned long long page, unsigned long long word, _Bool may_be_mask)
{
	if (!(word & 1))
		return page;
	return may_be_mask && bt_is_mask(word - 1) ? page & word : word - 1;
}

#endif
