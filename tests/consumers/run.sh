#!/usr/bin/env bash
# run.sh BUILD SOURCE WORK REFERENCE: installs BUILD into WORK/prefix, builds the consumers against it, and compares what
# they print with REFERENCE's output, a program with our own flags. CTest's entry "consumers".
set -euo pipefail
build=$1 source=$2 work=$3 reference=$4
rm -rf "$work" && mkdir -p "$work"
prefix=$work/prefix

fail() { echo "consumers: $*" >&2 && exit 1; }

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log" && exit 1; }
"$reference" >"$work/reference.txt"

# All headers in one source, with their functions kept; compiled beside what follows, judged below. The control needs one.
(cd "$prefix/include" && find fp16lab -name '*.hpp' | sort | sed 's/.*/#include "&"/') >"$work/contracted.cpp"
echo '#include "fp16lab/numerics/elementary/trigonometric.hpp"' >"$work/control.cpp"
contracted() { # NAME FLAGS...: writes to NAME.txt which functions of NAME.cpp that are ours have a fused multiply-add
  g++ -std=c++20 -O3 -mfma -w -fkeep-inline-functions -I"$prefix/include" "${@:2}" -S "$work/$1.cpp" -o - |
    awk -F: '/^[_A-Za-z][^ ]*:/ { name = $1 }
             /^\tvfn?m(add|sub)/ && name ~ /^_ZN?[A-Z]*7fp16lab/ { print name }' | sort -u | c++filt >"$work/$1.txt"
}
(
  contracted contracted
  contracted control -DFP16LAB_BUILDING
) &
headers=$!

compare() { # NAME PROGRAM
  "$2" >"$work/$1.txt" 2>"$work/$1.err" || { cat "$work/$1.err" && fail "$1 failed"; }
  diff "$work/reference.txt" "$work/$1.txt" || fail "$1 has other bits"
  echo "$1: the same bits"
}

# find_package: the examples run, and bits.cpp is what it was.
cmake -S "$source/tests/consumers" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
  >"$work/configure.log" 2>&1 || { cat "$work/configure.log" && exit 1; }
cmake --build "$work/build" >"$work/build.log" 2>&1 || { cat "$work/build.log" && exit 1; }
for variant in plain native beside_fast; do compare "$variant" "$work/build/bits_$variant"; done
cd "$work"
for example in convert_and_inspect gemm_of_every_generation histogram_and_scale two_layers_with_grad_scaler from_c; do
  "$work/build/$example" >"$example.txt" || fail "$example failed"
done
grep -q '^65520 .* overflow$' convert_and_inspect.txt || fail "convert_and_inspect does not tell the overflow"
grep -q '^hopper  *1 + 1.3' gemm_of_every_generation.txt || fail "gemm_of_every_generation: another sum on hopper"
grep -q 'Suggested: 2^' histogram_and_scale.txt || fail "histogram_and_scale suggests nothing"
grep -q '^step 20 .* skipped so far [1-9]' two_layers_with_grad_scaler.txt || fail "the scaler skipped nothing"
grep -q "known are.*hopper\|did you mean 'hopper'" from_c.txt || fail "from_c: no error was told"
"$work/build/residual_network_with_report" "$work/residual" >residual.txt || fail "residual_network_with_report failed"
[[ -s $work/residual-report/report.html ]] || fail "no page"
library=$(find "$prefix" -name 'libfp16lab.so')
"$work/build/from_a_test_bench" "$library" | grep -qx '0 mismatches in 17 vectors' || fail "from_a_test_bench"

# Without CMake, and by another compiler: the package's link line.
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name fp16lab.pc)")
export PKG_CONFIG_PATH
line=$(pkg-config --cflags --libs fp16lab)
bits=$(find "$work/build" -path '*/bits_native.dir/*' -name 'bits*.o')  # by g++ -std=c++20 -O3 -march=native
for compiler in g++ clang++; do
  if ! command -v "$compiler" >/dev/null; then echo "$compiler: not here, left out" && continue; fi
  [[ $compiler == g++ ]] && compiled=$bits || compiled=$source/tests/consumers/bits.cpp
  # shellcheck disable=SC2086
  "$compiler" -std=c++20 -O3 -march=native "$compiled" -o "bits_$compiler" $line
  compare "$compiler" "./bits_$compiler"
done

# shellcheck disable=SC2046
gcc "$source/experiments/examples/from_c.c" -o from_c_alone $(pkg-config --cflags --libs fp16lab-c) && ./from_c_alone >/dev/null ||
  fail "from_c by pkg-config"

# A C project takes the C interface and asks for nothing else; an unknown component is an error.
mkdir -p c_only && cd c_only
printf 'cmake_minimum_required(VERSION 3.25)\nproject(c_only LANGUAGES C)\nfind_package(fp16lab 0.3 CONFIG REQUIRED COMPONENTS %s)\nadd_executable(x %s)\ntarget_link_libraries(x PRIVATE fp16lab::c)\n' \
  '${COMPONENT}' "$source/experiments/examples/from_c.c" >CMakeLists.txt
cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCOMPONENT=c >c.log 2>&1 && cmake --build build >>c.log 2>&1 && build/x >/dev/null ||
  { cat c.log && fail "a project in C"; }
cmake -S . -B other -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCOMPONENT=numeric >other.log 2>&1 && fail "component numeric was found"
tr '\n' ' ' <other.log | tr -s ' ' | grep -q "no component 'numeric'; known are numerics" || { cat other.log && fail "no clear component"; }
cd ..

# The libraries as one shared one.
libraries=$(dirname "$(find "$prefix" -name libfp16lab_numerics.a)")
g++ -shared -o libshared.so -Wl,--whole-archive "$libraries"/libfp16lab_{engine,analysis,numerics}.a -Wl,--no-whole-archive \
  -Wl,--version-script="$source/scripts/exports.map" -lhwy -lfmt -lz -ldl
g++ "$bits" -o bits_shared libshared.so -Wl,-rpath,"$work"
compare shared ./bits_shared
if nm -D --defined-only libshared.so | grep -vE ' (_ZN?[A-Z]*[a-z0-9_]*N?K?7fp16lab|_ZT[hv][a-z0-9_]*N?K?7fp16lab|fp16lab_)' | grep -q .; then
  fail "libshared.so exports other names than ours: $(nm -D --defined-only libshared.so | grep -v 7fp16lab | head -3)"
fi

# A static link takes one of equal weak symbols, perhaps that of a file compiled with -Ofast: arithmetic of the standard
# library is none of ours.
weak='std::(accumulate|inner_product|partial_sum|reduce|transform_reduce|adjacent_difference|complex|generate_canonical|lerp|midpoint|hypot|[a-z_]*_distribution)'
for archive in "$libraries"/libfp16lab_{numerics,engine}.a; do
  if nm -C "$archive" 2>nm.err | grep -E " W ($weak|[a-z]+ $weak)[<(]"; then fail "$archive takes arithmetic of the standard library from others"; fi
done

# C++ headers refuse -ffast-math and its parts in one line that says why; fp16lab.h does not. What clang does not report is
# switched off.
for flags in -Ofast '-Ofast -fno-finite-math-only' '-O2 -funsafe-math-optimizations' '-O2 -ffinite-math-only' '-O2 -fno-signed-zeros' \
  '-O2 -fsingle-precision-constant' $([[ $(uname -m) != x86_64 ]] || echo -mfpmath=387); do
  # shellcheck disable=SC2086
  if g++ -std=c++20 $flags -I"$prefix/include" -c "$source/tests/consumers/includes_fast.cpp" -o fast.o 2>fast.err; then
    fail "$flags was not refused"
  fi
  [[ $(grep -c 'error:' fast.err) == 1 ]] && grep -q 'use fp16lab.h' fast.err || { cat fast.err && fail "$flags: no clear refusal"; }
done
if command -v clang++ >/dev/null; then
  # shellcheck disable=SC2086
  clang++ -std=c++20 -O3 -march=native -funsafe-math-optimizations "$source/tests/consumers/bits.cpp" -o bits_unsafe $line
  compare clang_unsafe ./bits_unsafe
fi
gcc -Ofast -I"$prefix/include" -c "$source/experiments/examples/from_c.c" -o fast_c.o

# No function of ours is contracted in a program that may contract; the control, with our marks off, is.
wait "$headers" || fail "the headers do not compile"
[[ ! -s contracted.txt ]] || fail "functions in headers are contracted: $(head -3 contracted.txt)"
[[ -s control.txt ]] || fail "the control is not contracted: this check cannot fail"

# No binary knows where it was built.
if grep -rlF "$source" "$prefix" | grep -q .; then fail "a path of the sources is in $(grep -rlF "$source" "$prefix" | head -3)"; fi
# The licence goes along, and the notices of what is compiled in.
documents=$(dirname "$(find "$prefix/share" -name CITATION.cff)")
cmp "$source/LICENSE" "$documents/LICENSE" || fail "no LICENSE is installed"
for part in NOTICE THIRD_PARTY_NOTICES; do
  [[ $(<"$documents/copyright") == *"$(<"$source/$part")"* ]] || fail "the installed copyright lacks $part"
done
# The program finds its configurations where it is installed.
answer=$(cd / && "$prefix/bin/fp16lab" train -c lenet5 --set nonesuch.key=1 2>&1 || true)
[[ $answer == *nonesuch.key* ]] || fail "-c lenet5 is not found: $answer"
# The preset library: sources of numerics and the C interface, and no other.
cmake -S "$source" --preset library -B "$work/library" >library.log 2>&1 || { cat library.log && fail "the preset library"; }
objects=$(ninja -C "$work/library" -t targets all | sed -n 's/\.o: .*//p')
[[ -n $objects ]] && ! grep -v '^numerics/' <<<"$objects" || fail "the preset library compiles other sources"
echo "consumers: all passed"
