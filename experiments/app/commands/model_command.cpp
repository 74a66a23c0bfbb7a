// fp16lab model: a network as a table, before anything is trained.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/amp/levels/level.hpp"
#include "engine/amp/levels/op_statistics.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/run/network_table.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/run/run_data.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/text.hpp"
#include "reports/figures/network_figure.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::ordered_json;

/// The levels that the configuration's dialect has; nothing for one that this network cannot have.
Json levels_json(const RunConfig& config, const RunData& data) {
  Json levels = Json::array();
  for (const engine::Level level : engine::amp::levels_of(config.amp.dialect)) {
    RunConfig at = config;
    at.amp.level = level;
    at.scaler.policy = "none";
    at.scaler.parameters.clear();
    try {
      const StepCosts costs = costs_of_step(resolve_run(at), data);
      levels.push_back({{"level", name_of(level)},
                        {"parameter_bytes", costs.memory.parameters},
                        {"master_bytes", costs.memory.masters},
                        {"gradient_bytes", costs.memory.gradients},
                        {"optimizer_bytes", costs.memory.optimizer},
                        {"activation_bytes", costs.memory.activations},
                        {"peak_bytes", costs.memory.peak},
                        {"multiply_adds", costs.multiply_adds}});
    } catch (const std::exception& error) {
      levels.push_back({{"level", name_of(level)}, {"refused", error.what()}});
    }
  }
  return levels;
}

std::string bytes_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 1e4) return fmt::format("{} B", bytes);
  if (value < 1e7) return fmt::format("{:.1f} kB", value * 1e-3);
  if (value < 1e10) return fmt::format("{:.1f} MB", value * 1e-6);
  return fmt::format("{:.1f} GB", value * 1e-9);
}

std::string count_text(double count) {
  if (count < 1e5) return fmt::format("{:.0f}", count);
  if (count < 1e8) return fmt::format("{:.2f} M", count * 1e-6);
  return fmt::format("{:.2f} G", count * 1e-9);
}

/// "640 x 10 x 84": m x n x k; a star where it does not fill tensor cores.
std::string products_text(const Json& products) {
  std::string text;
  for (const Json& product : products) {
    const auto number = [&](const char* name) { return product.at(name).get<std::int64_t>(); };
    text += fmt::format("{}{}{}{} x {} x {}{}", text.empty() ? "" : ", ",
                        number("times") == 1 ? "" : fmt::format("{} times ", number("times")),
                        number("batch") == 1 ? "" : fmt::format("{} of ", number("batch")), number("m"),
                        number("n"), number("k"), product.at("fills_tensor_cores").get<bool>() ? "" : "*");
  }
  return text;
}

/// "linear, frozen, f32"
std::string type_of(const Json& layer) {
  const std::string to_float = layer.at("to_float");
  return layer.at("type").get<std::string>() + (layer.at("frozen").get<bool>() ? ", frozen" : "") +
         (to_float.empty() ? "" : ", " + to_float);
}

void print_table(const Json& json) {
  std::size_t name = 5, type = 4, shape = 6;
  for (const Json& row : json.at("layers")) {
    name = std::max(name, row.at("layer").get_ref<const std::string&>().size());
    type = std::max(type, type_of(row).size());
    shape = std::max(shape, row.at("output").get_ref<const std::string&>().size());
  }
  fmt::print("{:<{}}  {:<{}}  {:<{}}  {:>10}  {:>9}  products m x n x k, batch {}\n", "layer", name, "type",
             type, "output", shape, "parameters", "MACs", json.at("batch_size").get<std::int64_t>());
  for (const Json& row : json.at("layers"))
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {:>10}  {:>9}  {}\n", row.at("layer").get<std::string>(), name,
               type_of(row), type, row.at("output").get<std::string>(), shape,
               row.at("parameters").get<std::int64_t>(), count_text(row.at("multiply_adds").get<double>()),
               products_text(row.at("products")));
  fmt::print(
      "{}, {} multiply-adds forward; *: an extent is not a multiple of {}, so 16-bit products of this\nshape "
      "do not fill tensor cores. Bytes count tensors; scratch memory of the products is extra.\n\n",
      counted(json.at("parameters").get<std::size_t>(), "parameter"),
      count_text(json.at("multiply_adds").get<double>()), engine::amp::channel_multiple);
  fmt::print("{:<6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}  {}\n", "level", "parameters", "masters",
             "gradients", "optimizer", "activations", "peak", "MACs of a step");
  for (const Json& level : json.at("levels")) {
    if (level.contains("refused")) {
      fmt::print("{:<6} {}\n", level.at("level").get<std::string>(), level.at("refused").get<std::string>());
      continue;
    }
    fmt::print("{:<6}", level.at("level").get<std::string>());
    for (const std::string_view part : {"parameter", "master", "gradient", "optimizer", "activation", "peak"})
      fmt::print(" {:>11}", bytes_text(level.at(fmt::format("{}_bytes", part)).get<std::uint64_t>()));
    fmt::print("  {}\n", count_text(level.at("multiply_adds").get<double>()));
  }
}

struct ModelCommand {
  CommonOptions common;
  bool json = false;
  std::string drawing;
};

ExitCode run_model(ModelCommand& command) {
  if (command.common.config.empty())
    throw CommandError(ExitCode::usage,
                       "model: expected a configuration: " + own_command({"model", "FILE.toml"}));
  const RunPlan plan = resolve_run(command.common);
  const RunConfig& config = plan.config;
  const std::unique_ptr<const RunData> data = load_data(config);
  checked_costs(plan, *data);
  Json json = network_table(config, *data);
  if (!command.drawing.empty()) {
    if (writes_to_descriptor(command.drawing, STDOUT_FILENO))
      throw CommandError(
          ExitCode::usage,
          fmt::format("model: --draw: {}: the table goes to the standard output; name a file, or "
                      "another descriptor",
                      command.drawing));
    if (const std::string problem = reports::draw_network(json.dump(), command.drawing); !problem.empty())
      throw CommandError(ExitCode::run_failed, "model: --draw: " + problem);
  }
  json["levels"] = levels_json(config, *data);
  if (command.json)
    fmt::print("{}\n", json.dump(2));
  else
    print_table(json);
  return ExitCode::ok;
}

}  // namespace

Command model_command() {
  return {
      .name = "model",
      .description =
          "Show a network as a table: shapes, parameters, multiply-adds, the products of each layer and "
          "whether they fill tensor cores,\nand the memory of a step at each AMP level. Nothing is trained, "
          "so a network of any size takes a moment.",
      .examples =
          "  fp16lab model lenet5\n"
          "  fp16lab model net.toml --set train.batch_size=256 --set amp.dialect=paddle --json\n"
          "  fp16lab model resnet20 --draw resnet20.svg",
      .uses = {.config = "Configuration in TOML: a file, or the name of one that fp16lab list shows",
               .bare_config = true,
               .set = "Override a configuration key; repeatable"},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<ModelCommand>();
        options.flag("--json", command->json, "Print one JSON document");
        options
            .add("--draw", command->drawing,
                 "Also draw it: FILE.dot, or with graphviz the format of FILE's ending, such as .svg, .png")
            .type("FILE");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_model(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
