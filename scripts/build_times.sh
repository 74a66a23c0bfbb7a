#!/usr/bin/env bash
# Where a build's time went, from ninja's log: wall seconds of every step, summed by folder, and the slowest steps. Steps run
# beside each other and share the cores, so sums are larger than the time that passed; compare builds of one machine.
#   scripts/build_times.sh [BUILD] [COUNT]   BUILD: its folder (default: build); COUNT: slowest steps shown (default: 20)
set -euo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 0 ;;
esac
log=${1:-$(dirname "$0")/../build}/.ninja_log
count=${2:-20}
if [[ ! -r $log ]]; then echo "build_times.sh: $log: no log of ninja; expected a folder that cmake --preset release made" >&2 && exit 2; fi
if ! [[ $count =~ ^[0-9]+$ ]]; then echo "build_times.sh: '$count': expected how many steps to show" >&2 && exit 2; fi

# The log has a line a step of every build since it was begun: start and end in milliseconds, a time stamp, the output. The
# last line of an output counts.
steps() {
  awk -F '\t' '!/^#/ { seconds[$4] = ($2 - $1) / 1000 } END { for (step in seconds) print seconds[step] "\t" step }' "$log"
}

echo "seconds  steps  room"
steps | awk -F '\t' '
  {
    parts = split($2, part, "/")
    room = part[1] == "tests" && parts > 2 ? part[1] "/" part[2] : part[1]
    if ($2 ~ /\.cu\.o$/) room = "CUDA sources (nvcc)"
    else if ($2 !~ /\.o$/) room = "links, archives and others"
    seconds[room] += $1; all += $1; ++number[room]; ++total
  }
  END {
    for (room in seconds) printf "%7.1f  %5d  %s\n", seconds[room], number[room], room | "sort -rn"
    close("sort -rn")
    printf "%7.1f  %5d  all\n", all, total
  }'
echo
echo "seconds  slowest steps"
steps | sort -rn | head -n "$count" | awk -F '\t' '{ printf "%7.1f  %s\n", $1, $2 }' || true
