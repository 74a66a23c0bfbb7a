#!/usr/bin/env bash
# From nothing to a report on a Debian: debootstrap makes a minimal system in a folder, a clean clone of the last commit
# goes there, and ./demo.sh runs in it; then scripts/setup.sh --tests, and some tests. Root, debootstrap and the network are
# needed; half an hour on two processors (all tests: an hour), 3 to 5 GB of disk.
#   scripts/try_debian.sh trixie               the system is build/debian/trixie; a second run takes it as it is
#   scripts/try_debian.sh bookworm NAME...     these test programs, such as numerics_mass; all: everything, by ctest -L fast
#   scripts/try_debian.sh bookworm --wheel F   only the wheel F (scripts/wheel.sh), by pip and without a compiler: the program,
#                                              the package, and a dump with a NaN; two minutes. Where python3 is older than
#                                              3.11, the program alone
#   scripts/try_debian.sh --help               this text
# Packages come from where this machine's apt takes them, or from the address in DEBIAN_MIRROR.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "" | -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0" && exit 0 ;;
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
wheel=''
if [[ ${1:-} == --wheel ]]; then wheel=$(realpath "${2:?--wheel needs a file}") && shift 2; fi
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
cp -L /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/" # whom this machine trusts
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"

in_system() { chroot "$system" env HOME=/root LC_ALL=C.UTF-8 PIP_CERT=/etc/ssl/certs/ca-certificates.crt PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
if [[ -n $wheel ]]; then
  rm -rf "$system/root/wheel" && mkdir "$system/root/wheel" && cp "$wheel" "$system/root/wheel"
  in_system apt-get update -qq
  in_system apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null
  began=$SECONDS
  in_system bash -euc 'cd ~/wheel
    if ! python3 -c "import sys; sys.exit(sys.version_info < (3, 11))"; then
      python3 -m zipfile -e ./*.whl venv && mkdir -p venv/bin && ln -s ../fp16lab/bin/fp16lab venv/bin && chmod +x venv/bin/fp16lab
      exec venv/bin/fp16lab self-check
    fi
    python3 -m venv venv
    venv/bin/pip install --quiet ./*.whl
    venv/bin/fp16lab self-check
    venv/bin/python - <<END
import numpy as np, fp16lab
assert fp16lab.matmul(np.float16([[1]]), np.float16([[2]]), model="hopper") == 2
gradients = {f"fc{i}.weight": np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32) for i in range(4)}
gradients["fc2.weight"][3, 4] = np.nan
np.savez("gradients.npz", **gradients)
END
    venv/bin/fp16lab hist gradients.npz | tee hist.txt
    grep -q "fc2.weight.*NaN" hist.txt'
  echo "$suite: from the wheel to the culprit in $((SECONDS - began)) s; $(du -sm "$system/root/wheel/venv" | cut -f1) MB"
  exit 0
fi

rm -rf "$system/root/fp16lab"
git clone --quiet --no-hardlinks . "$system/root/fp16lab"
inside() { in_system bash -c "cd ~/fp16lab && $1" bash "${@:2}"; }
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
