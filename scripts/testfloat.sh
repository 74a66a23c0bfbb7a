#!/usr/bin/env bash
# Judges `fp16lab softfloat` by Berkeley TestFloat: every f16, f32 and f64 function that testfloat_gen knows, in the
# five IEEE rounding modes, with tininess before and after rounding and with inexact integer roundings signalled or
# not, each where the function depends on it. One line a function on stdout.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/testfloat.sh [options] DIR [FUNCTION...]

  DIR            a build of TestFloat 3e: the folder of testfloat_gen and testfloat_ver
                 (make in berkeley-softfloat-3/build/Linux-x86_64-GCC, then in berkeley-testfloat-3/build/...)
  FUNCTION...    only these (default: all), such as f16_add f32_to_i64
  --level N      TestFloat's test level, 1 (default) or 2; mulAdd is always tested at level 1
  --program P    the program to judge (default: build/bin/fp16lab beside this script's folder)
  --jobs N       functions tested at a time (default: 1)

Level 1 takes about a minute on one core. Exit codes: 0 no errors, 2 usage, 5 errors found.

Examples:
  scripts/testfloat.sh ~/berkeley-testfloat-3/build/Linux-x86_64-GCC
  scripts/testfloat.sh --level 2 ~/berkeley-testfloat-3/build/Linux-x86_64-GCC f16_add f16_sqrt
TEXT
}

die() {
  echo "scripts/testfloat.sh: $1" >&2
  exit 2
}

level=1
program=$(dirname "$0")/../build/bin/fp16lab
jobs=1
positional=()
while (($# > 0)); do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --level | --program | --jobs)
      (($# >= 2)) || die "$1: expected a value"
      case "$1" in
        --level) level=$2 ;;
        --program) program=$2 ;;
        --jobs) jobs=$2 ;;
      esac
      shift ;;
    -*) die "unknown option '$1' (see --help)" ;;
    *) positional+=("$1") ;;
  esac
  shift
done
((${#positional[@]} > 0)) || die "expected the folder of testfloat_gen and testfloat_ver (see --help)"
directory=${positional[0]}
functions=("${positional[@]:1}")
[[ $level == 1 || $level == 2 ]] || die "--level '$level': expected 1 or 2"
[[ $jobs =~ ^[1-9][0-9]*$ ]] || die "--jobs '$jobs': expected a number of 1 or more"
[[ -x $program ]] || die "no program '$program'; build it, or say --program P"
for tool in testfloat_gen testfloat_ver; do
  [[ -x $directory/$tool ]] || die "no $tool in '$directory'"
done

if ((${#functions[@]} == 0)); then
  for format in f16 f32 f64; do
    for operation in add sub mul mulAdd div rem sqrt roundToInt eq le lt eq_signaling le_quiet lt_quiet; do
      functions+=("${format}_$operation")
    done
    for other in f16 f32 f64 ui32 ui64 i32 i64; do
      if [[ $other != "$format" ]]; then functions+=("${format}_to_$other"); fi
    done
    for integer in ui32 ui64 i32 i64; do functions+=("${integer}_to_$format"); done
  done
fi

# Every case that TestFloat generated must come back judged: a filter that loses lines would pass otherwise.
judge() {
  local function=$1 test_level=$level rounding tininess exact
  local roundings=(near_even minMag min max near_maxMag) tininesses=(after before) exacts=(notexact)
  local cases=0 runs=0 errors=0 first=""
  case "$function" in
    *_mulAdd) test_level=1 ;;
    *_eq | *_le | *_lt | *_signaling | *_quiet | *_rem) roundings=(near_even) tininesses=(after) ;;
    *_roundToInt | *_to_ui* | *_to_i*) tininesses=(after) exacts=(notexact exact) ;;
    ui* | i*) tininesses=(after) ;;
  esac
  local work
  work=$(mktemp -d)
  if ! "$directory/testfloat_gen" -level "$test_level" "$function" >"$work/cases" 2>"$work/stderr"; then
    echo "$function: ERRORS, $(head -n 1 "$work/stderr")"
    rm -r "$work"
    return 5
  fi
  local expected
  expected=$(wc -l <"$work/cases")
  for rounding in "${roundings[@]}"; do
    for tininess in "${tininesses[@]}"; do
      for exact in "${exacts[@]}"; do
        local verdict
        verdict=$("$program" softfloat "$function" --rounding "$rounding" --tininess "$tininess" "--$exact" \
          <"$work/cases" 2>"$work/stderr" |
          "$directory/testfloat_ver" -errors 1 "-r$rounding" "-tininess$tininess" "-$exact" "$function" 2>&1 |
          tr '\r' '\n' || true)
        runs=$((runs + 1))
        cases=$((cases + expected))
        if [[ $verdict != *"In $expected tests, no errors found"* ]] || ((expected == 0)); then
          errors=$((errors + 1))
          if [[ -z $first ]]; then
            first="first with --rounding $rounding --tininess $tininess --$exact:
$(tail -n 5 <<<"$verdict")
$(head -n 1 "$work/stderr")"
          fi
        fi
      done
    done
  done
  rm -r "$work"
  if ((errors == 0)); then
    echo "$function: ok, $cases cases in $runs modes"
  else
    echo "$function: ERRORS in $errors of $runs modes, $first"
    return 5
  fi
}

failed=0
running=0
for function in "${functions[@]}"; do
  if ((running == jobs)); then
    wait -n || failed=5
    running=$((running - 1))
  fi
  judge "$function" &
  running=$((running + 1))
done
for ((; running > 0; --running)); do wait -n || failed=5; done
exit $failed
