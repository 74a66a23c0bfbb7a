// claim.json (experiments/app/run/folder_claim.hpp). Text that is no claim is nothing, never an error; what
// is accepted must come back from its own text.
#include <optional>

#include "experiments/app/run/folder_claim.hpp"
#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::optional<experiments::Claimant> claimant =
      experiments::parse_claimant(fuzz::text_of({data, size}));
  if (!claimant) return 0;
  const std::string text = to_json(*claimant);
  if (experiments::parse_claimant(text) != claimant)
    fuzz::refuse("the text of what was read reads otherwise", text);
  return 0;
}
