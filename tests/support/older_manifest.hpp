// A manifest as builds wrote it that knew no digests: what a test changes by hand must not look like damage.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fp16lab::testing_support {

/// `text` is a manifest's; indented by two, as the program does.
inline std::string without_digests(const std::string& text) {
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(text);
  manifest.erase("sha256");
  if (manifest.contains("rows") && manifest["rows"].is_object()) manifest["rows"].erase("sha256");
  return manifest.dump(2) + "\n";
}

}  // namespace fp16lab::testing_support
