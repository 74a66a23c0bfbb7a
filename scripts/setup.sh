#!/usr/bin/env bash
# Installs the Debian packages of scripts/packages.txt that are missing (root or sudo), and exports the King James Bible,
# the text of the character models, to .cache/data/bible-kjv.txt.
#   scripts/setup.sh           what the demo and the Python package need: the lists [run] and [build]
#   scripts/setup.sh --tests   besides, what tests and benchmarks need: the list [tests]
#   scripts/setup.sh --help    this text
# Does nothing, and needs neither network nor root, when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

lists=' [run] [build] '
case "${1:-}" in
  "") ;;
  --tests) lists+='[tests] ' ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
  *) echo "scripts/setup.sh: unknown argument '$1' (known: --tests, --help)" >&2 && exit 2 ;;
esac

# The whole text, a verse a line, or nothing: a temporary name in the same folder, then a rename.
export_text() {
  local text=.cache/data/bible-kjv.txt partial
  if [[ -s $text ]]; then return; fi
  mkdir -p "${text%/*}"
  partial=$(mktemp "$text.XXXXXX")
  if ! bible -f gen1:1-rev22:21 </dev/null >"$partial" || [[ $(tail -n 1 "$partial") != Rev22:21\ * ]]; then
    rm -f "$partial"
    echo "scripts/setup.sh: 'bible -f gen1:1-rev22:21' (Debian package bible-kjv) did not give the whole text" >&2
    exit 1
  fi
  chmod 644 "$partial"
  sync "$partial"
  mv -f "$partial" "$text"
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "scripts/setup.sh: no apt-get here. Install the equivalents of scripts/packages.txt by hand." >&2
  exit 1
fi

missing=() wanted=no
while IFS='|' read -r package file; do
  package=${package//[[:space:]]/}
  file=${file//[[:space:]]/}
  if [[ -z $package || $package == \#* ]]; then continue; fi
  if [[ $package == \[* ]]; then
    wanted=no
    if [[ $lists == *" $package "* ]]; then wanted=yes; fi
    continue
  fi
  if [[ $wanted == no ]]; then continue; fi
  if [[ -n $file ]] && compgen -G "$file" >/dev/null; then continue; fi
  if [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) != installed ]]; then
    missing+=("$package")
  fi
done <scripts/packages.txt

if ((${#missing[@]} == 0)); then
  export_text
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "scripts/setup.sh: missing packages need root or sudo: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${#missing[@]} packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq >&2
"${as_root[@]}" apt-get install -y -qq --no-install-recommends --no-remove "${missing[@]}" >&2
export_text
