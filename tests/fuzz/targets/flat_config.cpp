// The configuration of a run as reports read it (reports/data/run_config.hpp).
#include "reports/data/run_config.hpp"

#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::expect_clean("config.toml: ", [&] {
    const reports::FlatConfig config = reports::flatten_toml(fuzz::text_of({data, size}), "config.toml");
    (void)reports::pretty(reports::identity_by_sections(config).label);
  });
  return 0;
}
