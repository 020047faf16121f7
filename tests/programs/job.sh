#!/bin/bash
# A job of a shell that computes and waits for a child in turn, beside an idle server.
#
#     bash job.sh SECONDS COMPUTE WAIT [SERVER …]
#
# It writes its phases as tests/programs/phases.py does. It looks at its counters without a child.
set -eu
seconds=$1 compute=$2 wait=$3
shift 3

# The uptime has hundredths of a second: EPOCHREALTIME has microseconds, and is one clock for this program's phases.
now_ns() { now=${EPOCHREALTIME/[.,]/}000; }

count() { read -r used waited _ <"/proc/$$/schedstat"; }

rows=
phase() {
  local kind=$1 began used_before waited_before
  now_ns; began=$now
  count; used_before=$used waited_before=$waited
  "${@:2}"
  now_ns; count
  rows+="${rows:+,}[\"$kind\",$began,$now,$((used - used_before)),$((waited - waited_before))]"
}

# In nanoseconds, of a number of seconds with at most three decimals.
nanoseconds() { local whole=${1%.*} part=; case $1 in *.*) part=${1#*.};; esac; part=${part}000; result=$((10#$whole$(printf %.3s "$part") * 1000000)); }

burn() {
  local end
  count
  end=$((used + compute_ns))
  while ((used < end)); do
    for ((number = 0; number < 500; number++)); do :; done
    count
  done
}

server=
if (($#)); then
  "$@" >/dev/null 2>&1 &
  server=$!
fi
result=; nanoseconds "$compute"; compute_ns=$result
nanoseconds "$seconds"
now_ns; end=$((now + result))
while now_ns; ((now < end)); do
  phase any burn
  phase sleep sleep "$wait"
done
printf '[%s]' "$rows" >"$TIMED_PHASES/$$.json"
if [ -n "$server" ]; then kill "$server"; fi
