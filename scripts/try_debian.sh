#!/usr/bin/env bash
# From nothing to a report on a Debian: debootstrap makes a minimal system in a folder, a clean clone of the last commit
# goes there, and ./demo.sh runs in it; then scripts/setup.sh --tests, and some tests. Root, debootstrap and the network are
# needed; three quarters of an hour on two processors, 6 GB of disk.
#   scripts/try_debian.sh trixie               the system is build/debian/trixie; a second run takes it as it is
#   scripts/try_debian.sh bookworm NAME...     these test programs, such as numerics_mass; all: everything, by ctest -L fast
#   scripts/try_debian.sh --help               this text
# Packages come from where this machine's apt takes them, or from the address in DEBIAN_MIRROR.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "" | -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
  -*) echo "scripts/try_debian.sh: the first argument is a suite of Debian, such as trixie, not '$1'" >&2 && exit 2 ;;
esac
if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
  echo "scripts/try_debian.sh: this needs root, and debootstrap (Debian: debootstrap)" >&2
  exit 2
fi
if [[ ${IN_OWN_NAMESPACE:-} != yes ]]; then # what is mounted here is gone when this ends
  IN_OWN_NAMESPACE=yes exec unshare --mount --propagation private "$0" "$@"
fi
suite=$1 && shift
# What another compiler or library would change: bits, messages, files.
tests=("$@")
if ((${#tests[@]} == 0)); then
  tests=(numerics_compiler numerics_arithmetic numerics_conversion_array numerics_tensor_core numerics_elementary
    numerics_gemm tensor_test analysis_paired_verdict experiments_command_line experiments_state_hashes)
fi

system=$PWD/build/debian/$suite
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | sed -n 1p)}
eval "$(apt-config shell proxy Acquire::http::Proxy)"
if [[ -n ${proxy:-} ]]; then export http_proxy=$proxy; fi
if [[ ! -e $system/debootstrap.done ]]; then
  rm -rf "$system" && mkdir -p "$system"
  debootstrap --variant=minbase --include=ca-certificates,git "$suite" "$system" "$mirror"
  echo force-unsafe-io >"$system/etc/dpkg/dpkg.cfg.d/unsafe-io" # nobody will miss it after a power cut
  touch "$system/debootstrap.done"
fi
cp -L /etc/resolv.conf "$system/etc/resolv.conf"
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"

rm -rf "$system/root/fp16lab"
git clone --quiet --no-hardlinks . "$system/root/fp16lab"
inside() { chroot "$system" env HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd ~/fp16lab && $1" bash "${@:2}"; }
inside ./demo.sh
inside 'test -s results/demo/report.html'
inside 'scripts/setup.sh --tests && cmake --preset release -DFP16LAB_TESTS=ON'
if [[ ${tests[*]} == all ]]; then
  inside 'cmake --build build && ctest --preset release --parallel 2 -L fast'
else
  inside 'cmake --build build --target "$@"' "${tests[@]}"
  inside 'ctest --preset release --parallel 2 -R "$1"' "^($(IFS='|' && echo "${tests[*]}"))\$"
fi
echo "$suite: the demo's page is $system/root/fp16lab/results/demo/report.html"
