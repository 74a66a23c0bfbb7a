#!/usr/bin/env bash
# Prints the text of this checkout by module: files, and lines. Figures (PNG, SVG) and binary vectors are no text.
#   scripts/lines.sh            the table; exit 1 above the budget
#   scripts/lines.sh --help     this text
# The budget below is the most lines that the whole may have. A change that needs more says why and raises it; one
# that simplifies lowers it.
set -euo pipefail
cd "$(dirname "$0")/.."

budget=248672

case "${1:-}" in
  '') ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 0 ;;
  *) echo "scripts/lines.sh: unknown argument '$1' (--help is known)" >&2 && exit 2 ;;
esac

if [[ $(git rev-parse --show-toplevel 2>/dev/null) != "$(pwd -P)" ]]; then
  echo "Skipped: lines by module: no git checkout"
  exit 0
fi
# Text is what git would show a difference of.
empty=$(git hash-object -t tree /dev/null)
git diff --numstat "$empty" -- . ':!*.svg' ':!*.png' | awk -v budget="$budget" '
  $1 == "-" { next }
  {
    split($3, parts, "/")
    module = index($3, "/") ? parts[1] : "(top level)"
    files[module]++
    lines[module] += $1
    all_files++
    all += $1
  }
  END {
    for (module in files) printf "%-12s %5d files %8d lines\n", module, files[module], lines[module] | "sort"
    close("sort")
    printf "%-12s %5d files %8d lines, of %d\n", "all", all_files, all, budget
    if (all > budget) {
      printf "scripts/lines.sh: %d lines are above the budget of %d that stands in it\n", all, budget > "/dev/stderr"
      exit 1
    }
  }'
