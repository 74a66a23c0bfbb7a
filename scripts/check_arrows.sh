#!/usr/bin/env bash
# Checks the arrows of the house: which folder (and which room of engine/) may include which. Exit 1 names every
# include that points the wrong way. "a: b c" means: files below a may include a itself, b and c.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed() {
  case "$1" in
    numerics) echo "numerics" ;;
    analysis) echo "analysis numerics" ;;
    engine/tensor) echo "engine/tensor numerics" ;;
    engine/data) echo "engine/data engine/tensor engine/backend numerics" ;;
    engine/backend) echo "engine/backend engine/tensor numerics" ;;
    engine/autograd) echo "engine/autograd engine/backend engine/tensor numerics" ;;
    engine/amp) echo "engine/amp engine/autograd engine/backend engine/tensor numerics" ;;
    engine/optim) echo "engine/optim engine/amp engine/autograd engine/backend engine/tensor numerics" ;;
    engine/nn) echo "engine/nn engine/optim engine/amp engine/autograd engine/backend engine/tensor numerics" ;;
    engine/train) echo "engine numerics" ;;
    reports) echo "reports analysis numerics" ;;
    experiments) echo "experiments reports analysis engine numerics" ;;
    *) echo "" ;;
  esac
}

wrong=0
while IFS=: read -r file line text; do
  target=$(sed -E 's/.*#include "([^"]+)".*/\1/' <<<"$text")
  room=${file%%/*}
  if [[ $room == engine ]]; then room=$(cut -d/ -f1-2 <<<"$file"); fi
  # The device's table of scalar programs: each is host and device code in a header of the room that runs it, and a
  # device needs all of them in one place.
  if [[ $file == engine/backend/cuda/programs.cu ]]; then room=engine/train; fi
  permitted=no
  for prefix in $(allowed "$room"); do
    if [[ $target == "$prefix"/* ]]; then permitted=yes; fi
  done
  case "$target" in
    numerics/* | analysis/* | engine/* | reports/* | experiments/* | tests/*)
      if [[ $permitted == no ]]; then
        echo "$file:$line: $room must not include $target" >&2
        wrong=1
      fi ;;
  esac
done < <(grep -rnE '^[[:space:]]*#include "' --include='*.hpp' --include='*.cpp' --include='*.h' --include='*.cu' \
  --include='*.cuh' numerics analysis engine reports experiments)
exit $wrong
