#include "experiments/device_acceptance/reproduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/files/disk/crc32c.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

/// The case as the bundle's device had it: its extents may follow from that device.
VerbCase case_of(const Settings& settings, const Bundle& bundle) {
  Settings there = settings;
  there.side = bundle.side;
  const Section& section = section_called(bundle.section);
  if (section.cases == nullptr)
    throw std::runtime_error(fmt::format("section {} compares no cases", bundle.section));
  const CaseList list = section.cases(there);
  const auto found = std::ranges::find(list.cases, bundle.key, &key_of);
  if (found == list.cases.end())
    throw std::runtime_error(
        fmt::format("section {} of this version has no case {}", bundle.section, bundle.key));
  return *found;
}

DeviceSide open_here(const Settings& settings) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 0);
  return settings.rehearsal() ? open_rehearsal() : open_gpu();
}

/// "0 of 9 elements", "3 of 9 elements (first: 4, expected 3c00, got 3c01)".
std::string difference_text(const Kept& ours, const Kept& theirs) {
  const DifferingWords words = differing_words(ours.bytes, theirs.bytes, ours.element_bytes);
  const std::size_t count = ours.bytes.size() / ours.element_bytes;
  if (words.words == 0) return fmt::format("0 of {} elements", count);
  const int digits = static_cast<int>(2 * ours.element_bytes);
  return fmt::format("{} of {} elements (first: {}, expected {:0{}x}, got {:0{}x})", words.words, count,
                     words.first, words.expected, digits, words.actual, digits);
}

}  // namespace

Settings settings_of_bundle(const Settings& settings, const Bundle& bundle) {
  Settings own = settings;
  own.seed = bundle.seed;
  own.quick = bundle.quick;
  return own;
}

ExitCode reproduce(const Settings& settings, const std::filesystem::path& folder) {
  const Bundle bundle = read_bundle(folder);
  const Settings own = settings_of_bundle(settings, bundle);
  const VerbCase one = case_of(own, bundle);
  const DeviceSide here = open_here(own);
  fmt::print("bundle: section {}, {}\n  there: {}\n  said:  {}\n  here:  {}\n", bundle.section, bundle.key,
             bundle.side.description, bundle.failure, here.description);
  if (!bundle.operands.given)
    fmt::print("  the bundle has not all of its operands: they are drawn again from seed {}\n", bundle.seed);
  if (here.tensor_core != bundle.side.tensor_core)
    fmt::print("  tensor cores: {} there, {} here; expected is what the emulator gives of {}\n",
               bundle.side.tensor_core, here.tensor_core, here.tensor_core);
  std::fflush(stdout);

  Operands operands = bundle.operands;
  Operands* const given = operands.given ? &operands : nullptr;
  const auto emulated = engine::make_emulated_backend(tensor_core_model(here.tensor_core), own.threads);
  const std::vector<Kept> expected = run_case(one, *emulated, bundle.size, own.seed, {}, given);
  if (expected.size() != bundle.outputs.size())
    throw std::runtime_error(fmt::format("the case keeps {} outputs, and the bundle has {}", expected.size(),
                                         bundle.outputs.size()));
  std::vector<Kept> got;
  try {
    got = run_case(one, *here.make({.gemm = one.route}), bundle.size, own.seed, {}, given);
  } catch (const std::exception& error) {
    fmt::print("the device here fails: {}\n", error.what());
    return ExitCode::mismatch;
  }
  std::size_t differing = 0, other_expected = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const BundledOutput& there = bundle.outputs[i];
    const bool differs = got.at(i).bytes != expected[i].bytes, differed = there.differing > 0 || !there.got;
    const bool same_expected = crc32c(expected[i].bytes) == there.expected;
    differing += differs ? 1 : 0;
    other_expected += same_expected ? 0 : 1;
    if (!differs && !differed && same_expected) continue;
    fmt::print("output {} ({}): the emulator gives {} the bundle expects; device against emulator: {} differ",
               i, there.name, same_expected ? "what" : "OTHER BITS than",
               difference_text(expected[i], got[i]));
    if (there.got)
      fmt::print("; the device's bits are {}those in the bundle",
                 crc32c(got[i].bytes) == *there.got ? "" : "not ");
    fmt::print("\n");
  }
  fmt::print("{} of {} outputs differ from the emulator here: the failure {}\n", differing, expected.size(),
             differing > 0 ? "is reproduced" : "is not reproduced, got and expected agree");
  if (other_expected > 0)
    fmt::print("of {} outputs this version's emulator expects other bits than the bundle\n", other_expected);
  std::fflush(stdout);
  return differing > 0 ? ExitCode::mismatch : ExitCode::ok;
}

}  // namespace fp16lab::experiments::acceptance
