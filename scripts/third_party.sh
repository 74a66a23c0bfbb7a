#!/usr/bin/env bash
# Collects the libraries that fp16lab links, as sources, for builds that take nothing from the system but libc
# (-DFP16LAB_THIRD_PARTY=DIR): wheels, the sdist, other processors. Highway, fmt and zlib are Debian's source packages, whose
# signatures apt checks; CLI11, toml++, nlohmann/json and the part of Boost that we include are the headers of the packages of
# scripts/packages.txt, which must be installed. Two megabytes come from the network; no root is needed.
#   scripts/third_party.sh DIR     DIR is made, or left as it is where it is complete; DIR/versions says what is in it
#   scripts/third_party.sh --help  this text
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  "" | -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
esac
folder=$1
if [[ -f $folder/versions && $folder/CMakeLists.txt -nt scripts/third_party.cmake ]]; then exit 0; fi
work=$(mktemp -d) && chmod 755 "$work" && trap 'rm -rf "$work"' EXIT

# An apt of our own that knows the sources of this machine's Debian.
mkdir -p "$work/lists/partial" "$work/cache" "$work/sources"
apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Label: Debian' |
  sort -u >"$work/sources.list"
printf '%s\n' "Dir::State::lists \"$work/lists\";" "Dir::Etc::sourcelist \"$work/sources.list\";" \
  'Dir::Etc::sourceparts "-";' 'APT::Sandbox::User "";' "Dir::Cache \"$work/cache\";" >"$work/apt.conf"
export APT_CONFIG=$work/apt.conf
apt-get update -qq
for package in highway fmtlib zlib; do
  version=$(apt-get source --print-uris -qq "$package" | sed -n "s/.* ${package}_\(.*\)\.dsc .*/\1/p")
  (cd "$work/sources" && apt-get source --download-only -qq "$package")
  mkdir "$work/sources/$package"
  tar -xf "$work"/sources/${package}_*.orig.tar.* -C "$work/sources/$package" --strip-components=1
  echo "$package $version" >>"$work/versions"
done
unset APT_CONFIG

new=$work/new
mkdir -p "$new"/{hwy,fmt,zlib,include/boost}
cp -r "$work"/sources/highway/hwy/{ops,*.h,*.cc} "$new/hwy"
rm -f "$new"/hwy/{*_test*,*benchmark*,robust_statistics*,timer*}
cp -r "$work"/sources/fmtlib/{include,src} "$new/fmt"
cp "$work"/sources/zlib/*.[ch] "$new/zlib"
mkdir "$new/licences"
for package in highway fmtlib zlib; do cat "$work/sources/$package"/LICENSE* >"$new/licences/$package"; done
cp -r /usr/include/{CLI,nlohmann,toml++} "$new/include"
# Boost: every header that ours reach, and all that it says of compilers, for the next one may be another.
cp -r /usr/include/boost/config "$new/include/boost"
git grep -h '#include <boost/' -- 'numerics/*' 'analysis/*' | sort -u | "${CXX:-g++}" -std=c++20 -M -x c++ - |
  tr ' \\' '\n' | sed -n 's|^/usr/include/||; /^boost\//p' | sort -u | tar -C /usr/include -c -T - | tar -C "$new/include" -x
for package in libcli11-dev libtomlplusplus-dev nlohmann-json3-dev; do
  dpkg-query -W -f '${source:Package} ${source:Version}\n' "$package" >>"$work/versions"
  cp -L "/usr/share/doc/$package/copyright" "$new/licences/$(dpkg-query -W -f '${source:Package}' "$package")"
done
# Boost's file has 2 MB of file names: the text of its licence alone.
awk '/^License: BSL-1.0/ { text = $0; lines = 0; next } text { text = text "\n" $0; ++lines } /^$/ { if (lines > 9) exit; text = "" }
     END { print text }' "/usr/share/doc/$(dpkg -S /usr/include/boost/version.hpp | cut -d: -f1)/copyright" >"$new/licences/boost"
echo "boost $(sed -n 's/#define BOOST_LIB_VERSION "\(.*\)"/\1/p' /usr/include/boost/version.hpp | tr _ .)" >>"$work/versions"
cp scripts/third_party.cmake "$new/CMakeLists.txt"
sort "$work/versions" >"$new/versions"
mkdir -p "$(dirname "$folder")" && rm -rf "$folder" && mv "$new" "$folder"
