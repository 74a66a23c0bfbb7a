// fp16lab reveal: in which order a row of the tensor-core table, a library's plan, or a product on a GPU adds
// the terms of a long sum.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "analysis/tensor_core_order.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/commands/plan_options.hpp"
#include "experiments/app/commands/tensor_core_row.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/order_figure.hpp"

namespace fp16lab::experiments {
namespace {

struct RevealCommand {
  CommonOptions common;
  std::string model, in, acc, gemm;  ///< empty: not given
  std::filesystem::path row;
  PlanOptions plan;
  int terms = 64;
  bool whole = false;  ///< --long
  bool json = false;
};

constexpr int most_terms = 4096;

OwnRow row_of(const RevealCommand& command) {
  if (command.model.empty() == command.row.empty())
    throw std::invalid_argument(fmt::format("expected {}--model NAME: {}; or --row FILE.toml",
                                            command.row.empty() ? "" : "one of ",
                                            fmt::join(fp16lab::tensor_core_names(), ", ")));
  if (!command.row.empty()) return load_tensor_core_row(command.row, command.in, command.acc);
  const DType accumulator = command.acc.empty() ? DType::f32 : accumulator_format(command.acc);
  const DType operands =
      command.in.empty() ? usual_operands(command.model, accumulator) : operand_format(command.in);
  return {nullptr, row_called(command.plan, command.model, operands, accumulator), operands};
}

struct Revealed {
  std::string model;
  DType operands, accumulator;
  std::string order;  ///< of a plan, in its own words
  analysis::RevealedSum sum;
};

/// The order of the first output of a product on the GPU.
Revealed revealed_on_device(const RevealCommand& command) {
  const auto is = [&](const char* operand) {
    return std::ranges::count(command.plan.transposed, operand) > 0;
  };
  const auto& [plan, call, m, n, batch, threads, parts, transposed, fast, join, partials] = command.plan;
  if (!command.model.empty() || !command.row.empty() || !command.acc.empty() || !plan.empty() ||
      !call.empty() || batch || threads || parts || fast || !join.empty() || !partials.empty() ||
      std::ssize(transposed) != is("a") + is("b"))
    throw std::invalid_argument("expected with --gemm no more than --in, --m, --n, --transposed a,b and -k");
  const DType operands = command.in.empty() ? DType::f16 : operand_format(command.in);
  if (operands != DType::f16 && operands != DType::bf16)
    throw std::invalid_argument(fmt::format("--in {}: expected f16 or bf16 with --gemm", command.in));
  const std::int64_t rows = m.value_or(1024), columns = n.value_or(1024), k = command.terms;
  const auto backend =
      engine::make_cuda_backend({.gemm = gemm_route(*enumerator_called<Gemm>(command.gemm))});
  engine::Tensor a = backend->empty(is("a") ? engine::Shape{k, rows} : engine::Shape{rows, k}, operands),
                 b = backend->empty(is("b") ? engine::Shape{columns, k} : engine::Shape{k, columns},
                                    operands),
                 out = backend->empty({rows, columns}, DType::f32),
                 first = backend->empty({1, columns}, DType::f32);
  std::vector<std::uint16_t> of_a(static_cast<std::size_t>(rows * k)),
      of_b(static_cast<std::size_t>(columns * k));
  std::vector<float> sums(static_cast<std::size_t>(columns));
  const analysis::DotProduct dot = [&](const auto& words_a, const auto& words_b) {
    for (std::size_t i = 0; i < words_a.size(); ++i) {
      of_a[is("a") ? i * static_cast<std::size_t>(rows) : i] = static_cast<std::uint16_t>(words_a[i]);
      of_b[is("b") ? i : i * static_cast<std::size_t>(columns)] = static_cast<std::uint16_t>(words_b[i]);
    }
    backend->upload(std::as_bytes(std::span(of_a)), a);
    backend->upload(std::as_bytes(std::span(of_b)), b);
    backend->gemm({.a = a, .b = b, .out = out, .transpose_a = is("a"), .transpose_b = is("b")});
    backend->slice(out, 0, 0, first);
    backend->download(first, std::as_writable_bytes(std::span(sums)));
    return sums.front();
  };
  return {fmt::format("{} on {}", command.gemm, backend->tensor_core()), operands, DType::f32, "",
          analysis::order_of(dot, operands, static_cast<std::size_t>(command.terms))};
}

Revealed revealed(const RevealCommand& command) try {
  if (!command.gemm.empty()) return revealed_on_device(command);
  const OwnRow own = row_of(command);
  const auto terms = static_cast<std::size_t>(command.terms);
  const CalledPlan plan(command.plan, own.row, own.operands, own.operands);
  const auto made = [&](const std::string& order, analysis::RevealedSum sum) {
    return Revealed{std::string(own.row.name), own.operands, own.row.accumulator(), order, std::move(sum)};
  };
  if (plan.is_one_chain()) return made("", analysis::order_of(own.row, own.operands, terms));
  const PlannedProduct product = plan.product(own.row, terms);
  return made(fmt::format("{}{}: {}", plan.name(), plan.call_text(), order_text(product)),
              analysis::order_of(product, own.operands, terms));
} catch (const std::invalid_argument& error) {
  throw CommandError(ExitCode::usage, fmt::format("reveal: {}", error.what()));
} catch (const analysis::NoSummationTree& error) {
  throw CommandError(ExitCode::run_failed, fmt::format("reveal: {}", error.what()));
}

ExitCode run_reveal(const RevealCommand& command) {
  const auto [model, operands, accumulator, order_of_plan, sum] = revealed(command);
  const auto& [tree, calls] = sum;
  const std::string plan = command.plan.plan.empty() ? "" : fmt::format(", plan {}", command.plan.plan);
  const std::string name =
      fmt::format("{}, {} operands, {} accumulator{}", model, name_of(operands), name_of(accumulator), plan);
  if (command.json) {
    nlohmann::ordered_json json{
        {"model", model},
        {"operands", name_of(operands)},
        {"accumulator", name_of(accumulator)},
        {"plan", order_of_plan.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(order_of_plan)},
        {"calls", calls}};
    json.update(nlohmann::ordered_json::parse(analysis::json_of(tree, -1)));
    fmt::print("{}\n", json.dump());
  } else {
    const std::string order = command.whole ? tree.text() : tree.short_text();
    fmt::print("{}: a sum of {} terms\n", name, tree.terms());
    if (!order_of_plan.empty()) fmt::print("plan      {}\n", order_of_plan);
    fmt::print("order     {}\n", tree.in_words().value_or("none with a name"));
    fmt::print("tree      {}\n", order);
    fmt::print("depth     {} on the longest path of a term, at most {} numbers in a sum\n",
               counted(tree.depth(), "sum"), tree.widest_join());
    fmt::print("calls     {}\n", calls);
  }
  if (command.common.out.empty()) return ExitCode::ok;
  const std::string stem =
      "order-" + reports::slug(fmt::format("{} {} {} {} {}", model, name_of(operands), name_of(accumulator),
                                           command.plan.plan, tree.terms()));
  const std::string problem = reports::draw_order(
      tree, fmt::format("Order of a sum of {} terms: {}", tree.terms(), name), stem, command.common.out);
  if (!problem.empty())
    say("fp16lab: note: {}", problem);
  else if (!command.common.quiet)
    say("figure: {}", (command.common.out / (stem + ".png")).string());
  return ExitCode::ok;
}

}  // namespace

Command reveal_command() {
  return {
      .name = "reveal",
      .description =
          "Find the order in which a long sum is added: by a tensor core, a library's plan or a GPU's "
          "product, which are called: one term is +M, one -M,\nall others are ones, and the sum counts those "
          "that are added after the two have met (FPRev, arXiv 2411.00442).\nPython's fp16lab.reveal does "
          "this with any sum that can be called, torch's included.\n\nIn the tree, [a b c] adds from left to "
          "right, {a b c} enters a sum at once, and .. continues what\nprecedes it at equal distances.",
      .examples =
          "  fp16lab reveal --model hopper --in bf16 -k 64\n"
          "  fp16lab reveal --model hopper-wgmma --in e4m3 -k 128 -o results/order\n"
          "  fp16lab reveal --model avx512_bf16 --plan onednn --m 4 --n 4 --transposed b -k 100\n"
          "  fp16lab reveal --gemm cublas --in bf16 --m 512 --n 512 -k 256",
      .uses = {.out = "Folder for the tree as a figure"},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<RevealCommand>();
        options
            .add("--model", command->model,
                 fmt::format("{} (fp16lab list shows their rows); or a chip: {}",
                             fmt::join(fp16lab::tensor_core_names(), ", "),
                             fmt::join(tensor_core_chips(), ", ")))
            .type("NAME")
            .offers(offer_names(fp16lab::tensor_core_names()));
        options.add("--row", command->row, "Instead of --model: a row of your own, as fp16lab mma takes it")
            .type("FILE.toml")
            .not_empty("a file")
            .offers(offer_files({".toml"}));
        options
            .add("--gemm", command->gemm,
                 "Instead of --model: a product of --m x --n outputs on the GPU of this machine, by "
                 "fp16lab's kernels (mma) or by cuBLAS (cublas), as in backend.gemm")
            .one_of({"mma", "cublas"})
            .type("ROUTE");
        options
            .add("--in", command->in,
                 fmt::format("Operands: {} (default: f16 where the row has it, else its own)",
                             fmt::join(dtype_names<is_operand>, ", ")))
            .type("FMT")
            .offers(offer_names(dtype_names<is_operand>));
        options.add("--acc", command->acc, "Accumulator: f32 (default), f16")
            .type("FMT")
            .offers(offer_words({"f32", "f16"}));
        options.add("-k,--terms", command->terms, "Terms of the sum (default: 64)")
            .type("N")
            .at_least(1, most_terms);
        options.flag("--long", command->whole,
                     "Print the whole tree: parentheses around the terms of each sum");
        options.flag("--json", command->json, "Print JSON instead of text, with all sums of the tree");
        declare_plan(options, command->plan, "Default: one chain");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_reveal(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
