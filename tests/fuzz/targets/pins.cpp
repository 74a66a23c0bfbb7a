// The file of pinned products (engine/backend/cuda/library/algorithm_cache.hpp). Lines that are JSON objects
// get the checksum that they should have, or none but the first would get past it.
#include "engine/backend/cuda/library/algorithm_cache.hpp"

#include <nlohmann/json.hpp>

#include "numerics/random/philox.hpp"
#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

namespace {

std::string with_checksums(std::string_view text) {
  using Json = nlohmann::ordered_json;
  std::string result;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.erase("checksum") > 0) {
      char digits[17];
      std::snprintf(digits, sizeof(digits), "%016llx",
                    static_cast<unsigned long long>(stream_id(json.dump())));
      json["checksum"] = digits;
      result += json.dump();
    } else {
      result += line;
    }
    if (end == std::string_view::npos) break;
    result += '\n';
    text.remove_prefix(end + 1);
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  const std::string text = with_checksums(fuzz::text_of({data, size}));
  input.replace({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  fuzz::expect_clean("backend.pins: " + input.path().string() + ":", [] {
    const engine::AlgorithmCache store({.library = "cuBLASLt 12"}, input.path());
    (void)store.size();
  });
  return 0;
}
