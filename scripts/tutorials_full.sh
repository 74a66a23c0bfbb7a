#!/usr/bin/env bash
# Makes the runs of experiments/configs/tutorials_full.toml one after another and prints the tutorials' tables beside ours.
# Stopped and started again it goes on from the last checkpoint, and ends with the same bits.
#   scripts/tutorials_full.sh PROGRAMS OUT [OPTION...]    PROGRAMS: folder of fp16lab and exp_tutorials
# OPTIONs go to `fp16lab sweep`: --threads 1, --set model.scale_down=16.
set -euo pipefail

(($# >= 2)) || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
programs=$1 out=$2
shift 2
config=$(cd "$(dirname "$0")/.." && pwd)/experiments/configs/tutorials_full.toml

list() { "$programs/fp16lab" sweep -c "$config" -o "$out" --list-tasks --quiet "$@"; }
runs=$(list "$@" | tail -n +2)
while IFS=, read -r number folder state; do
  echo "run $number, $(basename "$folder"): $state" >&2
  "$programs/fp16lab" sweep -c "$config" -o "$out" --task "$number" --quiet "$@" </dev/null >&2
  rm -rf "$folder/checkpoints"  # it is complete
  "$programs/exp_tutorials" --runs "$out" -o "$out" --quiet >"$out/tables.md.new"
  mv "$out/tables.md.new" "$out/tables.md"
done <<<"$runs"
cat "$out/tables.md"
