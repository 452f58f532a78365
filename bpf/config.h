/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Configuration by the loader, in .rodata: the verifier knows its values and removes the code of
 * what is not asked for. struct bt_config is in shared.h; recorder/probes/maps/admission.py fills it.
 */
#ifndef BIOTRAIL_CONFIG_H
#define BIOTRAIL_CONFIG_H

#include "shared.h"

/* The only object in .rodata. */
const volatile struct bt_config config = {};

#endif
