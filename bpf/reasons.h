/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Why a bio is left out of a recording. */
#ifndef BIOTRAIL_REASONS_H
#define BIOTRAIL_REASONS_H

#include "ring.h"

/* Why a bio was left out; recorder/filters/left_out.py names them in this order. */
enum bt_reason {
	BT_BY_DEVICE,
	BT_BY_OP,
	BT_BY_FLAGS,
	BT_BY_SIZE,
	BT_BY_SECTORS,
	BT_BY_PID,
	BT_BY_TID,
	BT_BY_COMM,
	BT_BY_CGROUP,
	BT_BY_FILE,
	BT_FILE_UNKNOWN, /* where files are filtered by: its file is not known */
	BT_DIR_UNKNOWN, /* its file's directory is not known, or is too deep */
	BT_NO_BIO, /* a request without bio, or a plug, where a filter needs a bio */
	BT_TABLE_FULL, /* wanted, but bt_followed is full: counted as lost */
	BT_BY_OWN, /* wanted, but the recorder's own I/O */
	BT_ADMITTED,
};
_Static_assert(BT_ADMITTED <= BT_REASONS, "reasons");

#endif
