#include "engine/backend/cuda/library/algorithm_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::engine {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view format_name = "fp16lab pins";
constexpr int format_version = 1;
/// Counts up whenever the comparison of algorithm_check.cpp changes: outcomes of another comparison are not
/// used.
constexpr int comparison_version = 1;

Json key_of(const AlgorithmEnvironment& environment, const ProductProblem& problem) {
  return {{"comparison", comparison_version},
          {"library", environment.library},
          {"device", environment.device},
          {"capability", {environment.capability_major, environment.capability_minor}},
          {"multiprocessors", environment.multiprocessors},
          {"driver", environment.driver},
          {"tensor_core", environment.tensor_core},
          {"workspace_bytes", environment.workspace_bytes},
          {"m", problem.m},
          {"n", problem.n},
          {"k", problem.k},
          {"batch", problem.batch},
          {"operands", name_of(problem.operands)},
          {"out", name_of(problem.out)},
          {"epilogue", "none"},
          {"transpose_a", problem.transpose_a},
          {"transpose_b", problem.transpose_b},
          {"leading_dimensions", {problem.lda, problem.ldb, problem.ldd}},
          {"alignments", {problem.alignment_a, problem.alignment_b, problem.alignment_d}}};
}

Json outcome_of(const AlgorithmOutcome& outcome) {
  if (!outcome.pinned) return {{"pinned", false}, {"reason", outcome.reason}};
  std::string words;
  for (const std::uint64_t word : outcome.algorithm.words) words += fmt::format("{:016x}", word);
  return {{"pinned", true},
          {"algorithm", words},
          {"algorithm_workspace_bytes", outcome.algorithm.workspace_bytes},
          {"description", outcome.algorithm.description}};
}

std::string checksum(const Json& line) { return fmt::format("{:016x}", stream_id(line.dump())); }

/// A whole number that T holds: nlohmann's own conversion of 1e64 to an int is undefined behaviour.
template <class T>
T whole(const Json& value) {
  if (value.is_number_unsigned() && std::in_range<T>(value.get<std::uint64_t>()))
    return static_cast<T>(value.get<std::uint64_t>());
  if (value.is_number_integer() && !value.is_number_unsigned() && std::in_range<T>(value.get<std::int64_t>()))
    return static_cast<T>(value.get<std::int64_t>());
  throw std::runtime_error(fmt::format("{} is no whole number from {} to {}", value.dump(),
                                       std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

DType dtype_called(const std::string& name) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
    if (name == name_of(dtype)) return dtype;
  throw std::runtime_error(fmt::format("no dtype of a product is called \"{}\"", name));
}

struct Line {
  AlgorithmEnvironment environment;
  bool current = false;  ///< made by this comparison
  ProductProblem problem;
  AlgorithmOutcome outcome;
};

AlgorithmOutcome read_outcome(const Json& json) {
  AlgorithmOutcome outcome;
  outcome.pinned = json.at("pinned").get<bool>();
  if (!outcome.pinned) {
    outcome.reason = json.at("reason").get<std::string>();
    return outcome;
  }
  const auto words = json.at("algorithm").get<std::string>();
  if (words.size() != 16 * outcome.algorithm.words.size() ||
      words.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw std::runtime_error("\"algorithm\" must be 128 hexadecimal digits");
  for (std::size_t i = 0; i < outcome.algorithm.words.size(); ++i)
    outcome.algorithm.words[i] = std::stoull(words.substr(16 * i, 16), nullptr, 16);
  outcome.algorithm.workspace_bytes = whole<std::size_t>(json.at("algorithm_workspace_bytes"));
  outcome.algorithm.description = json.at("description").get<std::string>();
  return outcome;
}

/// Throws what explains it.
Line read_line(const std::string& text) {
  Json json = parse_json(text);
  const auto noted = json.at("checksum").get<std::string>();
  json.erase("checksum");
  if (noted != checksum(json)) throw std::runtime_error("the checksum is not that of the line");
  Line line;
  line.current = whole<int>(json.at("comparison")) == comparison_version;
  line.environment = {.library = json.at("library").get<std::string>(),
                      .device = json.at("device").get<std::string>(),
                      .capability_major = whole<int>(json.at("capability").at(0)),
                      .capability_minor = whole<int>(json.at("capability").at(1)),
                      .multiprocessors = whole<int>(json.at("multiprocessors")),
                      .driver = whole<int>(json.at("driver")),
                      .tensor_core = json.at("tensor_core").get<std::string>(),
                      .workspace_bytes = whole<std::size_t>(json.at("workspace_bytes"))};
  if (json.at("epilogue").get<std::string>() != "none") line.current = false;
  const Json& ld = json.at("leading_dimensions");
  const Json& alignments = json.at("alignments");
  line.problem = {.m = whole<std::int64_t>(json.at("m")),
                  .n = whole<std::int64_t>(json.at("n")),
                  .k = whole<std::int64_t>(json.at("k")),
                  .batch = whole<std::int64_t>(json.at("batch")),
                  .operands = dtype_called(json.at("operands").get<std::string>()),
                  .out = dtype_called(json.at("out").get<std::string>()),
                  .transpose_a = json.at("transpose_a").get<bool>(),
                  .transpose_b = json.at("transpose_b").get<bool>(),
                  .lda = whole<std::int64_t>(ld.at(0)),
                  .ldb = whole<std::int64_t>(ld.at(1)),
                  .ldd = whole<std::int64_t>(ld.at(2)),
                  .alignment_a = whole<std::uint32_t>(alignments.at(0)),
                  .alignment_b = whole<std::uint32_t>(alignments.at(1)),
                  .alignment_d = whole<std::uint32_t>(alignments.at(2))};
  line.outcome = read_outcome(json);
  return line;
}

struct CacheFile {
  std::vector<std::string> texts;  ///< behind the header
  std::vector<Line> lines;
};

/// Empty if there is no such file; std::runtime_error naming file and line if it is no file of pins.
CacheFile read_cache(const std::filesystem::path& path) {
  CacheFile file;
  if (!is_there(path)) return file;
  std::size_t number = 1;
  try {
    const Lines lines = read_lines(path);
    if (lines.torn_bytes != 0) {
      number = lines.complete.size() + 1;
      throw std::runtime_error("the line does not end");
    }
    if (lines.complete.empty()) throw std::runtime_error("there is no header");
    const Json header = parse_json(lines.complete.front());
    if (header.at("format").get<std::string>() != format_name)
      throw std::runtime_error(fmt::format("\"format\" is not \"{}\"", format_name));
    if (const int version = whole<int>(header.at("version")); version != format_version)
      throw std::runtime_error(
          fmt::format("version {}, this program reads version {}", version, format_version));
    for (const std::string& text : std::span(lines.complete).subspan(1)) {
      ++number;
      file.lines.push_back(read_line(text));
      file.texts.push_back(text);
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("backend.pins: {}:{} is not a line of pinned products ({}); remove the "
                    "file, or name another one",
                    path.string(), number, printable(error.what())));
  }
  return file;
}

}  // namespace

AlgorithmCache::AlgorithmCache(AlgorithmEnvironment environment, std::filesystem::path file)
    : environment_(std::move(environment)), file_(std::move(file)) {
  if (file_.empty()) return;
  for (Line& line : read_cache(file_).lines)
    if (line.current && line.environment == environment_) outcomes_[line.problem] = std::move(line.outcome);
}

const AlgorithmOutcome* AlgorithmCache::find(const ProductProblem& problem) const {
  const auto found = outcomes_.find(problem);
  return found == outcomes_.end() ? nullptr : &found->second;
}

const AlgorithmOutcome& AlgorithmCache::remember(const ProductProblem& problem, AlgorithmOutcome outcome) {
  if (!outcome.failed && !file_.empty()) write(problem, outcome);
  return outcomes_[problem] = std::move(outcome);
}

void AlgorithmCache::keep_accepted(
    const std::function<bool(const ProductProblem&, const ProductAlgorithm&)>& accepts) {
  std::erase_if(outcomes_, [&](const auto& entry) {
    return entry.second.pinned && !accepts(entry.first, entry.second.algorithm);
  });
}

void AlgorithmCache::write(const ProductProblem& problem, const AlgorithmOutcome& outcome) const {
  Json line = key_of(environment_, problem);
  line.update(outcome_of(outcome));
  line["checksum"] = checksum(line);
  std::string content = Json{{"format", format_name}, {"version", format_version}}.dump() + '\n';
  const CacheFile file = read_cache(file_);
  for (std::size_t i = 0; i < file.lines.size(); ++i)
    if (!(file.lines[i].current && file.lines[i].environment == environment_ &&
          file.lines[i].problem == problem))
      content += file.texts[i] + '\n';
  write_file_atomically(file_, content + line.dump() + '\n', NamedBy::user);
}

std::size_t AlgorithmCache::Hash::operator()(const ProductProblem& problem) const {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
  };
  for (const std::int64_t extent :
       {problem.m, problem.n, problem.k, problem.batch, problem.lda, problem.ldb, problem.ldd})
    mix(static_cast<std::uint64_t>(extent));
  for (const std::uint32_t alignment : {problem.alignment_a, problem.alignment_b, problem.alignment_d})
    mix(alignment);
  mix(static_cast<std::uint64_t>(problem.operands) * 64 + static_cast<std::uint64_t>(problem.out) * 8 +
      (problem.transpose_a ? 4u : 0u) + (problem.transpose_b ? 2u : 0u) + (problem.tf32 ? 1u : 0u));
  return static_cast<std::size_t>(hash);
}

}  // namespace fp16lab::engine
