#include "experiments/app/commands/mma_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {

void add_mma_options(CLI::App& app, MmaCommand& command) {
  const std::string models = fmt::format("{}", fmt::join(tensor_core_names(), ", "));
  app.add_option("--model", command.model, models + " (fp16lab list shows their rows)")->type_name("NAME");
  std::string operands = "Operands:";
  for (const DType format : dtypes<is_low_precision>)
    operands += fmt::format("{} {}{}", operands.back() == ':' ? "" : ",", name_of(format),
                            format == DType::f16 ? " (default)" : "");
  app.add_option("--in", command.in, operands)->type_name("FMT");
  app.add_option("--in-b", command.in_b, "Operands of b where they differ: e4m3 with e5m2, or the reverse")
      ->type_name("FMT");
  app.add_option("--acc", command.acc, "Accumulator c and result d: f32 (default), f16")->type_name("FMT");
  app.add_flag("--verify", command.verify,
               "Each line has a fourth field, the d-word of some hardware: write only lines that differ, "
               "with our d-word behind them; exit code 5 if there is one");
  const std::string open = "What published models leave open";
  app.add_option("--subnormal-accumulator", command.subnormal_accumulator,
                 "Alignment exponent of a subnormal FP16 c: emin (default) or own_exponent")
      ->type_name("RULE")
      ->group(open);
  app.add_option("--underflow-zero", command.underflow_zero,
                 "A negative sum that rounds to zero: keeps_sign (default) or positive")
      ->type_name("RULE")
      ->group(open);
  app.add_option("--fp8-order", command.fp8_order,
                 "FP8 through FP16 (hopper, blackwell): the first block takes k mod 4 in {0,1} "
                 "(pairs, default) or k < 16 (halves)")
      ->type_name("ORDER")
      ->group(open);
  app.add_option("--exponent-floor", command.exponent_floor, "E0, the least exponent of the alignment")
      ->type_name("N")
      ->group(open);
  app.add_option("--block-size", command.block_size, "L, products in a fused block")
      ->type_name("N")
      ->group(open);
  app.add_option("--fraction-bits", command.fraction_bits, "F, bits kept below the largest exponent")
      ->type_name("N")
      ->group(open);
}

}  // namespace fp16lab::experiments
