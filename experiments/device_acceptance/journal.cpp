#include "experiments/device_acceptance/journal.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/nesting.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const VerbRow& row) {
  return {{"verb", row.verb},
          {"cases", row.cases},
          {"elements", row.elements},
          {"differing_elements", row.differing_elements},
          {"differing_bits", row.differing_bits},
          {"notes", row.notes},
          {"failed", row.failed},
          {"refusals", row.refusals},
          {"bundles", row.bundles}};
}

VerbRow row_of(const Json& json) {
  return {.verb = json.at("verb"),
          .cases = json.at("cases"),
          .elements = json.at("elements"),
          .differing_elements = json.at("differing_elements"),
          .differing_bits = json.at("differing_bits"),
          .notes = json.at("notes"),
          .failed = json.at("failed"),
          .refusals = json.at("refusals"),
          .bundles = json.at("bundles")};
}

/// Messages of drivers and tools may hold any bytes.
std::string line_of(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

}  // namespace

Journal::Journal(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.empty() || !is_there(path_)) return;
  for (const std::string& line : read_lines(path_).complete) {
    const Json json = parse_json(line);
    if (json.contains("begun")) {
      begun_ = json["begun"].get<std::string>();
    } else {
      last_ = json.at("ended").get<std::string>();
      rows_[last_] = row_of(json.at("row"));
      begun_.reset();
    }
  }
}

const VerbRow* Journal::ended(const std::string& key) const {
  const auto found = rows_.find(key);
  return found == rows_.end() ? nullptr : &found->second;
}

void Journal::append(const std::string& line) {
  if (!path_.empty()) LineFile(path_, LineFile::Mode::append).append(line);
}

void Journal::begin(const std::string& key) {
  begun_ = key;
  append(line_of({{"begun", key}}));
}

void Journal::end(const std::string& key, const VerbRow& row) {
  rows_[key] = row;
  last_ = key;
  begun_.reset();
  append(line_of({{"ended", key}, {"row", json_of(row)}}));
}

}  // namespace fp16lab::experiments::acceptance
