#include "engine/nn/network/layer_row.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>

#include "numerics/platform/extent.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::nn {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw std::invalid_argument(where.empty() ? what : where + ": " + what);
}

/// "h{}" with 2: "h2"; "h" with 2: "h.2", or "h" where there is one only.
std::string numbered(const LayerBlock& block, std::int64_t number) {
  const std::size_t place = block.name.find("{}");
  const std::string digits = std::to_string(number);
  if (place != std::string::npos) return block.name.substr(0, place) + digits + block.name.substr(place + 2);
  return block.repeat == 1 ? block.name : block.name + "." + digits;
}

/// Places row after row; `known` is what inputs can name.
class Placing {
 public:
  explicit Placing(const NetworkRows& network) : row_names_(names_of_rows(network)) {}

  void add(const LayerBlock& block) {
    if (block.repeat < 1) refuse(block.where, "block '" + block.name + "': repeat must be 1 or more");
    if (block.rows.empty()) refuse(block.where, "block '" + block.name + "' has no rows");
    if (block.first < 0 || block.first > largest_size)
      refuse(block.where,
             "block '" + block.name + "': first must be from 0 to " + std::to_string(largest_size));
    if (!block.input.empty()) last_ = find(block.where, block.input, "", network_input);
    if (block.repeat > (most_layers - static_cast<std::int64_t>(rows_.size())) /
                           static_cast<std::int64_t>(block.rows.size()))
      refuse(block.where, "block '" + block.name + "': with repeat = " + std::to_string(block.repeat) +
                              " the network would have more than " + std::to_string(most_layers) + " layers");
    for (std::int64_t i = 0; i < block.repeat; ++i) {
      const std::string path = block.name.empty() ? "" : numbered(block, block.first + i);
      const int given = last_;
      for (std::size_t row = 0; row < block.rows.size(); ++row)
        add(block.rows[row], row_names_[first_row_ + row], path.empty() ? "" : path + ".",
            path.empty() ? network_input : given);
      if (!path.empty() && places_.emplace(path, last_).second) names_.push_back(path);
    }
    first_row_ += block.rows.size();
  }

  std::vector<PlacedRow> finish() {
    if (rows_.empty()) throw std::invalid_argument("the network has no rows");
    std::vector<bool> used(rows_.size(), false);
    for (const PlacedRow& row : rows_)
      for (const int input : row.inputs)
        if (input >= 0) used[static_cast<std::size_t>(input)] = true;
    for (std::size_t i = 0; i + 1 < rows_.size(); ++i)
      if (!used[i])
        refuse(rows_[i].row->where,
               "layer '" + rows_[i].path + "': nothing uses its output; name it in the input of a later row");
    return std::move(rows_);
  }

 private:
  void add(const LayerRow& row, const std::string& name, const std::string& prefix, int given) {
    const std::string path = prefix + name;
    if (row.name == "input" || path.starts_with('.') || path.ends_with('.') ||
        path.find("..") != std::string::npos)
      refuse(row.where, "layer name '" + row.name + "': expected words with dots between them, not 'input'");
    if (places_.contains(path)) refuse(row.where, "layer '" + path + "' is there twice");
    PlacedRow placed{.path = path, .prefix = prefix, .inputs = {}, .row = &row};
    for (const std::string& input : row.inputs)
      placed.inputs.push_back(find(row.where, input, prefix, given));
    if (row.inputs.empty()) placed.inputs.push_back(last_);
    last_ = static_cast<int>(rows_.size());
    places_.emplace(path, last_);
    names_.push_back(path);
    rows_.push_back(std::move(placed));
  }

  /// A name of the same block first.
  int find(const std::string& where, const std::string& name, const std::string& prefix, int given) const {
    if (name == "input") return given;
    for (const std::string& path : {prefix + name, name})
      if (const auto place = places_.find(path); place != places_.end()) return place->second;
    const std::vector<std::string_view> known(names_.begin(), names_.end());
    refuse(where, "input '" + name + "': expected \"input\", or the name of an earlier row or block" +
                      did_you_mean(name, known));
  }

  std::vector<std::string> row_names_;
  std::size_t first_row_ = 0;  ///< the next block's, in row_names_
  std::vector<PlacedRow> rows_;
  std::vector<std::string> names_;
  std::map<std::string, int> places_;
  int last_ = network_input;
};

}  // namespace

bool LayerRow::operator==(const LayerRow& other) const {
  const auto sorted = [](auto pairs) {
    std::ranges::sort(pairs);
    return pairs;
  };
  return type == other.type && name == other.name && inputs == other.inputs && to_float == other.to_float &&
         frozen == other.frozen && sorted(arguments) == sorted(other.arguments);
}

bool LayerBlock::operator==(const LayerBlock& other) const {
  return name == other.name && input == other.input && repeat == other.repeat && first == other.first &&
         rows == other.rows;
}

std::vector<std::string> names_of_rows(const NetworkRows& network) {
  std::vector<std::string> names;
  std::map<std::string, int> outside_blocks;
  for (const LayerBlock& block : network) {
    std::map<std::string, int> inside;
    std::map<std::string, int>& count = block.name.empty() ? outside_blocks : inside;
    for (const LayerRow& row : block.rows)
      names.push_back(row.name.empty() ? row.type + std::to_string(++count[row.type]) : row.name);
  }
  return names;
}

std::vector<PlacedRow> placed(const NetworkRows& network) {
  Placing placing(network);
  for (const LayerBlock& block : network) placing.add(block);
  return placing.finish();
}

}  // namespace fp16lab::engine::nn
