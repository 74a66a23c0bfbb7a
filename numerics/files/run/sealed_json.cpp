#include "numerics/files/run/sealed_json.hpp"

#include "numerics/files/disk/sha256.hpp"

namespace fp16lab::run_json {
namespace {

/// What ends an object in several lines, and in one.
constexpr std::string_view closings[] = {"\n}", "}"};

std::string with_seal(std::string_view members, std::string_view closing) {
  const bool lines = closing.size() > 1;
  std::string text(members);
  text += lines ? ",\n  \"" : ",\"";
  text += seal_key;
  text += lines ? "\": \"" : "\":\"";
  text += sha256_of(members);
  text += '"';
  return text.append(closing) += '\n';
}

}  // namespace

std::string sealed(std::string_view object) {
  const std::string_view closing = closings[object.ends_with(closings[0]) ? 0 : 1];
  return with_seal(object.substr(0, object.size() - closing.size()), closing);
}

bool is_sealed(std::string_view text) {
  for (const std::string_view closing : closings) {
    const std::size_t seal = with_seal("", closing).size();
    if (text.size() > seal && text == with_seal(text.substr(0, text.size() - seal), closing)) return true;
  }
  return false;
}

}  // namespace fp16lab::run_json
