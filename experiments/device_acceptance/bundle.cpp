#include "experiments/device_acceptance/bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "experiments/device_acceptance/npy_file.hpp"
#include "experiments/device_acceptance/side_json.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/crc32c.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

extern char** environ;

namespace fp16lab::experiments::acceptance {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* case_sizes[] = {"full", "odd", "small"};  // in the order of CaseSize

/// A folder's name: "large-4-gemm-f16-128x256-tiles-1024x2048x64-NT".
std::string folder_name(const std::string& text) {
  constexpr std::size_t longest = 120;
  std::string name;
  for (const char c : text.substr(0, longest)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (plain || (!name.empty() && name.back() != '-')) name += plain ? c : '-';
  }
  while (name.ends_with('-')) name.pop_back();
  return name;
}

/// What of the environment CUDA, its tools and this program listen to.
Json environment() {
  Json json = Json::object();
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const auto name = text.substr(0, text.find('='));
    const auto about = [&](std::string_view prefix) { return name.starts_with(prefix); };
    if (about("CUDA_") || about("CUBLAS") || about("NVIDIA_") || about("FP16LAB_") || about("LD_PRELOAD"))
      json[std::string(name)] = std::string(text.substr(std::min(name.size() + 1, text.size())));
  }
  return json;
}

/// The texts that the machine reads for this row, and the architecture that it plays.
const char* ptx_architecture(const std::string& row) {
  return row == "turing" ? "75" : row == "hopper" ? "90" : "80";
}

std::string commands_text(const Settings& settings, const fs::path& folder) {
  const std::string where = shell_line({fs::absolute(folder).string()});
  const std::string arch = ptx_architecture(settings.side.tensor_core);
  return fmt::format(
      "On a GPU, from the root of the sources:\n\n  build/bin/exp_device_acceptance --reproduce {0}\n\n"
      "On the machine that executes PTX, without a GPU (cmake --build build --target on_ptx "
      "fp16lab_ptx_{1}):\n\n"
      "  FP16LAB_PTX_ARCH={1} FP16LAB_PTX_MULTIPROCESSORS={2} build/tests/on_ptx \\\n"
      "    build/bin/exp_device_acceptance --reproduce {0}\n",
      where, arch, settings.side.multiprocessors);
}

Json facts(const Settings& settings, const fs::path& folder, const std::string& failure) {
  return {{"format", "fp16lab-bundle"},
          {"version", 1},
          {"section", settings.section},
          {"failure", failure},
          {"device", json_of(settings.side)},
          {"seed", settings.seed},
          {"quick", settings.quick},
          {"command", settings.command},
          {"environment", environment()},
          {"git_hash", git_hash()},
          {"compiler", compiler_name()},
          {"cpu", cpu_name()},
          {"reproduce", commands_text(settings, folder)}};
}

fs::path finish(const fs::path& folder, const Json& json) {
  write_file_atomically(folder / "reproduce.txt", json.at("reproduce").get<std::string>());
  write_file_atomically(folder / "bundle.json",
                        json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n");
  return folder;
}

fs::path fresh_folder(const Settings& settings, const std::string& name) {
  const fs::path folder = bundles_of(settings) / folder_name(name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

/// Writes arrays until they are too many bytes together; a name for each that is there.
class Arrays {
 public:
  explicit Arrays(const Settings& settings, fs::path folder) : folder_(std::move(folder)) {
    const auto others = std::distance(fs::directory_iterator(bundles_of(settings)), fs::directory_iterator());
    if (others > most_bundles_with_arrays) left_ = 0;
  }
  Json write(const std::string& name, std::optional<DType> dtype, const engine::Shape& shape,
             std::size_t element_bytes, std::span<const std::byte> bytes) {
    if (bytes.size() > left_) return nullptr;
    left_ -= bytes.size();
    write_npy(folder_ / name, dtype, shape, element_bytes, bytes);
    return name;
  }

 private:
  fs::path folder_;
  std::uint64_t left_ = most_bundle_bytes;
};

Json extents_of(const engine::Shape& shape) {
  return std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end());
}

const char* route_text(engine::GemmRoute route) {
  return route == engine::GemmRoute::mma ? "mma" : route == engine::GemmRoute::cublas ? "cublas" : "other";
}

}  // namespace

fs::path bundles_of(const Settings& settings) { return settings.out / "bundles"; }

fs::path write_case_bundle(const Settings& settings, const VerbCase& one, CaseSize size,
                           const std::vector<Kept>& got, const std::string& failure) {
  const fs::path folder = fresh_folder(settings, settings.section + "-" + key_of(one));
  const auto emulated =
      engine::make_emulated_backend(tensor_core_model(settings.side.tensor_core), settings.threads);
  Operands operands;
  const std::vector<Kept> expected = run_case(one, *emulated, size, settings.seed, {}, &operands);

  Json json = facts(settings, folder, failure);
  json["verb"] = one.verb;
  json["case"] = one.name;
  json["size"] = case_sizes[static_cast<std::size_t>(size)];
  json["route"] = route_text(one.route);
  Arrays arrays(settings, folder);
  Json outputs = Json::array(), taken = Json::array();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Kept& ours = expected[i];
    const std::size_t elements = ours.bytes.size() / ours.element_bytes;
    Json output{{"name", ours.name},
                {"dtype", ours.dtype ? Json(name_of(*ours.dtype)) : Json(nullptr)},
                {"shape", ours.dtype ? extents_of(ours.shape) : Json{elements}},
                {"elements", elements},
                {"expected_crc32c", crc32c(ours.bytes)}};
    const bool comparable = got.size() == expected.size() && got[i].bytes.size() == ours.bytes.size();
    if (comparable) {
      const DifferingWords words = differing_words(ours.bytes, got[i].bytes, ours.element_bytes);
      output["got_crc32c"] = crc32c(got[i].bytes);
      output["differing"] = words.words;
      if (words.words > 0) output["first_difference"] = words.first;
    }
    if (!comparable || output["differing"] != 0)
      output["expected"] = arrays.write(fmt::format("expected-{}.npy", i), ours.dtype, ours.shape,
                                        ours.element_bytes, ours.bytes);
    if (comparable && output["differing"] != 0)
      output["got"] = arrays.write(fmt::format("got-{}.npy", i), ours.dtype, ours.shape, ours.element_bytes,
                                   got[i].bytes);
    outputs.push_back(std::move(output));
  }
  for (const Operand& operand : operands.all)
    taken.push_back({{"dtype", name_of(operand.dtype)},
                     {"shape", extents_of(operand.shape)},
                     {"crc32c", crc32c(operand.bytes)},
                     {"file", arrays.write(fmt::format("operand-{}.npy", taken.size()), operand.dtype,
                                           operand.shape, size_of(operand.dtype), operand.bytes)}});
  json["outputs"] = std::move(outputs);
  json["operands"] = std::move(taken);
  return finish(folder, json);
}

fs::path write_section_bundle(const Settings& settings, const SectionReport& report) {
  Settings own = settings;
  own.section = report.name;
  std::string failure = report.failure;
  for (const Claim& claim : report.result.claims)
    if (analysis::is_mismatch(claim))
      failure += fmt::format("{}{}: {} (expected {})", failure.empty() ? "" : "; ", claim.claim,
                             claim.measured, claim.criterion);
  const fs::path folder = fresh_folder(settings, report.name);
  return finish(folder, facts(own, folder, failure));
}

namespace {
/// Bundles are received: their texts are made printable.
std::string text_at(const Json& json, const char* key) { return printable(json.at(key).get<std::string>()); }
}  // namespace

Bundle read_bundle(const fs::path& folder) {
  const fs::path file = folder / "bundle.json";
  try {
    const Json json = parse_json(read_file(file));
    if (json.at("format") != "fp16lab-bundle" || json.at("version") != 1)
      throw std::runtime_error("its format is another one");
    Bundle bundle{.section = text_at(json, "section"),
                  .key = {},
                  .seed = json.at("seed"),
                  .quick = json.at("quick"),
                  .side = side_of(json.at("device")),
                  .failure = text_at(json, "failure"),
                  .operands = {},
                  .outputs = {}};
    if (!json.contains("case")) return bundle;
    bundle.key = text_at(json, "verb") + '/' + text_at(json, "case");
    const auto size = std::ranges::find(case_sizes, json.at("size").get<std::string>());
    if (size == std::end(case_sizes)) throw std::runtime_error("'size' is full, odd or small");
    bundle.size = static_cast<CaseSize>(size - std::begin(case_sizes));
    for (const Json& output : json.at("outputs"))
      bundle.outputs.push_back({.name = text_at(output, "name"),
                                .elements = output.at("elements"),
                                .differing = output.value("differing", std::uint64_t{0}),
                                .expected = output.at("expected_crc32c"),
                                .got = output.contains("got_crc32c")
                                           ? std::optional(output["got_crc32c"].get<std::uint32_t>())
                                           : std::nullopt});
    bundle.operands.given = true;
    for (const Json& operand : json.at("operands")) {
      if (operand.at("file").is_null()) {
        bundle.operands = {};  // drawn again
        break;
      }
      const auto dtype = dtype_called<is_any>(operand.at("dtype").get<std::string>());
      if (!dtype) throw std::runtime_error("an operand's dtype is unknown");
      const engine::Shape shape(operand.at("shape").get<std::vector<std::int64_t>>());
      // A name, no way out of the folder.
      bundle.operands.all.push_back(
          read_npy(folder / fs::path(operand.at("file").get<std::string>()).filename(), *dtype, shape));
      if (crc32c(bundle.operands.all.back().bytes) != operand.at("crc32c"))
        throw std::runtime_error(
            fmt::format("{} is not the array that was written", operand.at("file").get<std::string>()));
    }
    return bundle;
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}; expected a bundle of exp_device_acceptance", file.string(),
                                         printable(error.what())));
  }
}

}  // namespace fp16lab::experiments::acceptance
