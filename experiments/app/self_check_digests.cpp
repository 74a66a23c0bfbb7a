// What the build that shipped computed: the output of `fp16lab self-check --digests`. A change of bits changes
// it, and the test SelfCheck asks for the new lines.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "experiments/app/self_check.hpp"

namespace fp16lab::experiments {
namespace {

constexpr auto digests = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"conversions f16", "03693491604bc241"},
    {"conversions bf16", "c096328f7d8397ba"},
    {"conversions tf32", "0cd4c690de746fc4"},
    {"conversions e4m3", "745c962ff3854d52"},
    {"conversions e5m2", "c1abd23bb112a790"},
    {"conversions e3m2", "69863eb86eb7ab51"},
    {"conversions e2m3", "74779b4f8dc5a390"},
    {"conversions e2m1", "f3a1ad099dd5b6fc"},
    {"conversions e4m3fnuz", "b8c09a5362329897"},
    {"conversions e5m2fnuz", "7329cf52e655715d"},
    {"conversions e8m0", "0f1420847c7d5a19"},
    {"conversions ue4m3", "90febfb4ddaf2617"},
    {"products volta f16 f32", "be12ab087e5ef5c4"},
    {"products volta f16 f16", "5f2d3a3240115fb3"},
    {"products turing f16 f32", "a95f7b0a1fe61555"},
    {"products turing f16 f16", "47544c89ee54cbe3"},
    {"products ampere f16 f32", "a95f7b0a1fe61555"},
    {"products ampere bf16 f32", "d6823c101033aae8"},
    {"products ampere f16 f16", "47544c89ee54cbe3"},
    {"products ampere tf32 f32", "1330d45767769a76"},
    {"products ada f16 f32", "a95f7b0a1fe61555"},
    {"products ada bf16 f32", "d6823c101033aae8"},
    {"products ada f16 f16", "47544c89ee54cbe3"},
    {"products ada tf32 f32", "1330d45767769a76"},
    {"products ada e4m3 f32", "06079aa838c321c8"},
    {"products ada e5m2 f32", "579d3f5f491a8f1b"},
    {"products ada e4m3 f16", "19a5eade02859242"},
    {"products ada e5m2 f16", "9a3838e6436fda07"},
    {"products hopper f16 f32", "b8310b219ba6cf93"},
    {"products hopper bf16 f32", "1099cbbe106a33e7"},
    {"products hopper f16 f16", "bd4a81373b244efa"},
    {"products hopper tf32 f32", "e15b5bb9fbc59106"},
    {"products hopper e4m3 f32", "1924588f25f531fb"},
    {"products hopper e5m2 f32", "1b31e9c3bd8407a7"},
    {"products hopper e4m3 f16", "ebff995c32bd470e"},
    {"products hopper e5m2 f16", "ae3caba1ee41865d"},
    {"products hopper-wgmma f16 f32", "b8310b219ba6cf93"},
    {"products hopper-wgmma bf16 f32", "1099cbbe106a33e7"},
    {"products hopper-wgmma f16 f16", "bd4a81373b244efa"},
    {"products hopper-wgmma tf32 f32", "e15b5bb9fbc59106"},
    {"products hopper-wgmma e4m3 f32", "9875ce57c449dda5"},
    {"products hopper-wgmma e5m2 f32", "e3a00f5ec4031ac3"},
    {"products hopper-wgmma e4m3 f16", "a7fca8afc6e206a8"},
    {"products hopper-wgmma e5m2 f16", "dbaaf58dc8151754"},
    {"products blackwell f16 f32", "b8310b219ba6cf93"},
    {"products blackwell bf16 f32", "1099cbbe106a33e7"},
    {"products blackwell f16 f16", "bd4a81373b244efa"},
    {"products blackwell tf32 f32", "e15b5bb9fbc59106"},
    {"products blackwell e4m3 f32", "1924588f25f531fb"},
    {"products blackwell e5m2 f32", "1b31e9c3bd8407a7"},
    {"products blackwell e4m3 f16", "ebff995c32bd470e"},
    {"products blackwell e5m2 f16", "ae3caba1ee41865d"},
    {"products blackwell-tcgen05 f16 f32", "b8310b219ba6cf93"},
    {"products blackwell-tcgen05 bf16 f32", "1099cbbe106a33e7"},
    {"products blackwell-tcgen05 f16 f16", "bd4a81373b244efa"},
    {"products blackwell-tcgen05 tf32 f32", "e15b5bb9fbc59106"},
    {"products blackwell-tcgen05 e4m3 f32", "61cf581b4c4af7a6"},
    {"products blackwell-tcgen05 e5m2 f32", "62a3825e29af4170"},
    {"products blackwell-tcgen05 e3m2 f32", "d5d0439cd602839a"},
    {"products blackwell-tcgen05 e2m3 f32", "8174dd405b00bc41"},
    {"products blackwell-tcgen05 e2m1 f32", "f861fd299642c5ae"},
    {"products blackwell-tcgen05 e4m3 f16", "d97e0f4eb36d1d86"},
    {"products blackwell-tcgen05 e5m2 f16", "51f4999b8182f71d"},
    {"products blackwell-tcgen05 e3m2 f16", "3760da4e4a432990"},
    {"products blackwell-tcgen05 e2m3 f16", "e975fd3cd76c1e1e"},
    {"products blackwell-tcgen05 e2m1 f16", "93506293b1041d06"},
    {"products avx512_bf16 bf16 f32", "a0bd3807aab1b281"},
    {"products blackwell-mxf8f6f4 e4m3 f32 e8m0/32", "a525996c22825605"},
    {"products blackwell-mxf8f6f4 e5m2 f32 e8m0/32", "f9baff5e2c3ef8a0"},
    {"products blackwell-mxf8f6f4 e3m2 f32 e8m0/32", "1900807a6e6a6d0d"},
    {"products blackwell-mxf8f6f4 e2m3 f32 e8m0/32", "98f9c881ff1ffe45"},
    {"products blackwell-mxf8f6f4 e2m1 f32 e8m0/32", "ba7d89441e829356"},
    {"products blackwell-mxf4nvf4 e2m1 f32 ue4m3/16", "8bdd903b81d145ff"},
    {"products blackwell-mxf4nvf4 e2m1 f32 e8m0/16", "0b1d31127bf9bce3"},
    {"products blackwell-mxf4nvf4 e2m1 f32 e8m0/32", "b7661d98b724db78"},
    {"training f32", "335812d2de1ac12a"},
    {"training f16", "07281065b4eef82a"},
    {"training bf16", "b50c9d2ccf61dff4"},
});

}  // namespace

std::string_view shipped_digest(std::string_view name) {
  const auto found = std::ranges::find(digests, name, &std::pair<std::string_view, std::string_view>::first);
  return found == digests.end() ? std::string_view() : found->second;
}

SelfCheck compare_with_shipped(const std::vector<CheckedDigest>& computed) {
  SelfCheck check;
  std::map<std::string, std::pair<int, int>> kinds;  // those that agree, and all
  for (const CheckedDigest& each : computed) {
    auto& [agree, all] = kinds[each.name.substr(0, each.name.find(' '))];
    const std::string_view shipped = shipped_digest(each.name);
    ++all;
    if (each.digest == shipped) {
      ++agree;
      continue;
    }
    ++check.differing;
    check.text += fmt::format("{}: {} here, {} in the build that shipped\n", each.name, each.digest,
                              shipped.empty() ? "unknown" : shipped);
  }
  for (const auto& [kind, counts] : kinds)
    check.text += fmt::format("{}: {} of {} have the bits of the build that shipped\n", kind, counts.first,
                              counts.second);
  return check;
}

}  // namespace fp16lab::experiments
