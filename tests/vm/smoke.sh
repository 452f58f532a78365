#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the virtual machine: record three kinds of disk while fio reads and writes them with
# direct I/O, convert, and leave everything in $VM_OUT for test_smoke.py to judge.
set -eu
biotrail=.venv/bin/biotrail

cat >/run/job.fio <<'JOB'
[global]
direct=1
ioengine=libaio
iodepth=4
bs=4k
size=2m
rw=randrw
randseed=7
[nvme0n1]
filename=/dev/nvme0n1
[sda]
filename=/dev/sda
[vda]
filename=/dev/vda
JOB

ls /sys/kernel/tracing/events/block >"$VM_OUT/tracepoints"
$biotrail doctor >"$VM_OUT/doctor.txt" 2>&1 || true # judged by what it says
$biotrail record -q -d nvme0n1 -d sda -d vda -o "$VM_OUT/smoke.biotrail" -- \
    fio --output-format=json --output="$VM_OUT/fio.json" /run/job.fio
$biotrail info --json "$VM_OUT/smoke.biotrail" >"$VM_OUT/info.json"
$biotrail convert "$VM_OUT/smoke.biotrail" -o "$VM_OUT/smoke.pftrace"

# A second recording, with call stacks, of a program that reads one disk directly.
$biotrail record -q --stacks --user-stacks -d vda -o "$VM_OUT/stacks.biotrail" -- \
    fio --name=stacks --filename=/dev/vda --direct=1 --ioengine=psync --rw=randread --bs=4k \
    --size=1m --output-format=json --output="$VM_OUT/stacks-fio.json"
$biotrail stacks --json "$VM_OUT/stacks.biotrail" >"$VM_OUT/stacks.json"
