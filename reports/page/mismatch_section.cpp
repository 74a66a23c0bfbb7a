// Why two engines give a run's test data different log-probabilities.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/page_sections.hpp"

namespace fp16lab::reports {
namespace {

/// Null for a number that is not finite, which files have as a string.
OrderedJson number_of(const OrderedJson& json) {
  return json.is_string() ? OrderedJson() : OrderedJson(json.get<double>());
}

OrderedJson gap_of(const OrderedJson& gap) {
  const OrderedJson& interval = gap.at("interval");
  OrderedJson numbers{number_of(gap.at("mean_magnitude")), nullptr, nullptr};
  for (std::size_t end = 0; end < 2 && !interval.is_null(); ++end)
    numbers[1 + end] = number_of(interval.at(end));
  return numbers;
}

OrderedJson split_of(const OrderedJson& told) {
  OrderedJson json{{"targets", told.at("targets").get<std::uint64_t>()},
                   {"batches", told.at("batches").get<std::uint64_t>()},
                   {"b", gap_of(told.at("b"))},
                   {"twin", told.at("twin").is_null() ? OrderedJson() : gap_of(told.at("twin"))},
                   {"causes", OrderedJson::array()},
                   {"operations", OrderedJson::array()}};
  for (const OrderedJson& cause : told.at("causes"))
    json["causes"].push_back({{"name", plain(cause.at("setting").get<std::string>())},
                              {"alone", gap_of(cause.at("alone"))},
                              {"without", gap_of(cause.at("without"))}});
  if (told.contains("operations"))
    for (const OrderedJson& operation : told.at("operations"))
      json["operations"].push_back({{"name", plain(operation.at("kind").get<std::string>())},
                                    {"alone", gap_of(operation.at("alone"))}});
  return json;
}

}  // namespace

OrderedJson mismatch_json(const Run& run) {
  const std::filesystem::path path = run.folder.path / run_file::mismatch;
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return nullptr;
  const std::string text = read_file(path);
  try {
    return split_of(parse_json(text));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path.string(), error.what()));
  } catch (const OrderedJson::exception& error) {
    const std::string_view what(error.what());  // "[json.exception.NAME.NUMBER] ..."
    throw std::runtime_error(fmt::format("{}: not what fp16lab mismatch writes: {}", path.string(),
                                         printable(what.substr(what.find("] ") + 2))));
  }
}

}  // namespace fp16lab::reports
