// A failure in a folder of its own, from which it can be had again on another machine.
//
//   bundle.json      what failed, on what, in which environment, and which arrays lie beside it
//   reproduce.txt    the commands: on a GPU, and on the machine that executes PTX
//   operand-0.npy    what the case took, in the order in which it took it
//   expected-0.npy   what the emulator gives, of every output that differs
//   got-0.npy        what the device gave there; absent where it gave nothing
//
// BF16 is stored as its bits ('<u2'). Arrays of more than 64 MiB together are not all written, and nor are
// those of a fortieth bundle and later ones: bundle.json says which are missing. Missing operands are drawn
// again from the seed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/device_acceptance/report.hpp"
#include "experiments/device_acceptance/section.hpp"

namespace fp16lab::experiments::acceptance {

inline constexpr std::uint64_t most_bundle_bytes = std::uint64_t{64} << 20;
inline constexpr int most_bundles_with_arrays = 40;

/// The bundles of a report: OUT/bundles.
std::filesystem::path bundles_of(const Settings& settings);

/// `got`: what the device gave, empty where it gave nothing. Runs the case on the emulated back end, for the
/// operands and what is expected. The bundle's folder.
std::filesystem::path write_case_bundle(const Settings& settings, const VerbCase& one, CaseSize size,
                                        const std::vector<Kept>& got, const std::string& failure);
/// Of a section that failed, or whose claims did, without a case of its own to blame: the section itself.
std::filesystem::path write_section_bundle(const Settings& settings, const SectionReport& report);

/// One output of a case; CRC-32C of what the emulator and the device gave.
struct BundledOutput {
  std::string name;
  std::uint64_t elements = 0, differing = 0;
  std::uint32_t expected = 0;
  std::optional<std::uint32_t> got;
};
struct Bundle {
  std::string section, key;  ///< no key: the whole section
  CaseSize size{};
  std::uint64_t seed = 1;
  bool quick = false;
  DeviceSide side;                     ///< on which it failed
  std::string failure;                 ///< what was said
  Operands operands;                   ///< given, unless they are missing
  std::vector<BundledOutput> outputs;  ///< all that the case keeps
};
/// std::runtime_error naming the file and what is wrong with it.
Bundle read_bundle(const std::filesystem::path& folder);

}  // namespace fp16lab::experiments::acceptance
