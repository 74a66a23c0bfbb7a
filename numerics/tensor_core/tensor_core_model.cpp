#include "numerics/tensor_core/tensor_core_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "numerics/text/nearest_name.hpp"

namespace fp16lab {

namespace {

using enum Evidence;
using enum BlockOutput;

constexpr OperandFormats half_only{DType::f16};
constexpr OperandFormats halves{DType::f16, DType::bf16};
constexpr OperandFormats tensor_floats{DType::tf32};
constexpr OperandFormats bytes{DType::e4m3, DType::e5m2};
constexpr OperandFormats f8f6f4{DType::e4m3, DType::e5m2, DType::e3m2, DType::e2m3, DType::e2m1};

constexpr TensorCoreModel with_scales(TensorCoreModel row, int exact_group,
                                      const std::array<ScaleKind, 3>& scales) {
  row.set(&Stage::exact_group, exact_group);
  row.scales = scales;
  return row;
}
/// Every chip with FP64 tensor cores: PTX's mma.f64 of any shape.
constexpr TensorCoreModel fp64_chain(std::string_view name, std::string_view hardware) {
  return {name,
          hardware,
          OperandFormats{DType::f64},
          {{.sum = Sum::fma, .products = 1, .output = fp64_nearest_even}},
          model,
          "MMA-Sim 2.1.1, arXiv 2511.10909"};
}

// The captures of Khattak & Mikaitis (arXiv 2512.07004) are the ones in github.com/north-numerical-computing/
// MATLAB-tensor-core: 48 times 5000 outputs of one instruction, on eight devices. These rows give every one
// of the 240,000 bit for bit (compared by `fp16lab mma --verify`; the most telling are in tests/golden/
// tensor_core_captured.tsv). They show products, alignment and rounding, not exponent floors, subnormals,
// specials or zero signs; those come from MMA-Sim (arXiv 2511.10909; PyPI mmasim 2.1.1 of 2026-10-22), whose
// exponent floors follow from the generation's fraction bits F0 (23, 24, 25): -108 - F0 with FP32 output and
// 4 - F0 with FP16 output. The code of Khattak & Mikaitis of 2026-08-13 has the same floors for FP16 output.
constexpr std::array models{
    TensorCoreModel{"volta", "sm_70 mma, wmma (V100); sm_75 mma.m8n8k4", half_only,
                    fused_block(4, 23, fp32_toward_zero, -131), hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, V100 captures; Fasi et al., PeerJ CS 330"},
    TensorCoreModel{"volta", "sm_70 mma, wmma (V100); sm_75 mma.m8n8k4", half_only,
                    fused_block(4, 23, fp16_nearest_even, -19), hardware_test,
                    "rounding: Khattak & Mikaitis, V100 captures; block, bits and floor: MMA-Sim 2.1.1"},

    TensorCoreModel{"turing", "sm_75 mma.m16n8k8, wmma (T4)", half_only,
                    fused_block(8, 24, fp32_toward_zero, -132), hardware_test,
                    "MMA-Sim, arXiv 2511.10909, assertions run on T4 (block of 8; Fasi et al. read 4)"},
    TensorCoreModel{"turing", "sm_75 mma.m16n8k8, wmma (T4)", half_only,
                    fused_block(8, 24, fp16_nearest_even, -20), hardware_test,
                    "MMA-Sim, arXiv 2511.10909, assertions run on T4"},

    TensorCoreModel{
        "ampere", "sm_80, sm_86 mma, wmma (A100, A2)", halves, fused_block(8, 24, fp32_toward_zero, -132),
        hardware,
        "Khattak & Mikaitis, arXiv 2512.07004, A100 and A2 captures; MMA-Sim 2.1.1, arXiv 2511.10909"},
    TensorCoreModel{"ampere", "sm_80, sm_86 mma, wmma (A100, A2)", half_only,
                    fused_block(8, 24, fp16_nearest_even, -20), hardware,
                    "Khattak & Mikaitis, A100 and A2 captures (block; bits weakly); floor: MMA-Sim 2.1.1"},
    TensorCoreModel{"ampere", "sm_80, sm_86 mma (A100, A2)", tensor_floats,
                    fused_block(4, 24, fp32_toward_zero, -132), hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, A100 and A2 captures"},

    TensorCoreModel{"ada", "sm_89 mma, wmma (L40S, RTX 1000 Ada)", halves,
                    fused_block(8, 24, fp32_toward_zero, -132), hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, L40S and RTX 1000 Ada captures"},
    TensorCoreModel{"ada", "sm_89 mma, wmma (L40S, RTX 1000 Ada)", half_only,
                    fused_block(8, 24, fp16_nearest_even, -20), hardware,
                    "Khattak & Mikaitis, L40S and RTX 1000 Ada captures (block); floor: MMA-Sim 2.1.1"},
    TensorCoreModel{"ada", "sm_89 mma (L40S, RTX 1000 Ada)", tensor_floats,
                    fused_block(4, 24, fp32_toward_zero, -132), hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, L40S and RTX 1000 Ada captures"},
    TensorCoreModel{"ada", "sm_89 mma (L40S, RTX 1000 Ada)", bytes,
                    fused_block(16, 13, fp32_toward_zero_14_bits, -132), hardware,
                    "Khattak & Mikaitis, L40S and RTX 1000 Ada captures, two chained blocks"},
    TensorCoreModel{"ada", "sm_89 mma (RTX 1000 Ada)", bytes, fused_block(16, 13, fp16_nearest_even, -20),
                    hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, RTX 1000 Ada captures; floor: MMA-Sim 2.1.1"},

    TensorCoreModel{
        "hopper", "sm_90 mma.sync, wmma (H100, H200)", halves, fused_block(16, 25, fp32_toward_zero, -133),
        hardware,
        "Khattak & Mikaitis, arXiv 2512.07004, H100 and H200 captures; MMA-Sim 2.1.1, arXiv 2511.10909"},
    TensorCoreModel{"hopper", "sm_90 mma.sync, wmma (H100, H200)", half_only,
                    fused_block(16, 25, fp16_nearest_even, -21), hardware,
                    "Khattak & Mikaitis, H100 and H200 captures (block, rounding); floor: MMA-Sim 2.1.1"},
    TensorCoreModel{
        "hopper", "sm_90 mma.sync (H100, H200)", tensor_floats, fused_block(8, 25, fp32_toward_zero, -133),
        hardware,
        "Khattak & Mikaitis, H100 and H200 captures (bits); block of 8: MMA-Sim 2.1.1, arXiv 2511.10909"},
    TensorCoreModel{"hopper", "sm_90 mma.sync (H100, H200)", bytes,
                    two_blocks_then_c(2, 25, fp32_toward_zero, -133), model,
                    "as on B200, which the captures of Khattak & Mikaitis show; FP32 output was not captured",
                    true},
    TensorCoreModel{"hopper", "sm_90 mma.sync (H100, H200)", bytes,
                    two_blocks_then_c(2, 25, fp16_nearest_even, -21), hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, H100 and H200 captures (order, not bits)", true},

    TensorCoreModel{"hopper-wgmma", "sm_90a wgmma (H100, H200)", halves,
                    fused_block(16, 25, fp32_toward_zero, -133), hardware_test,
                    "MMA-Sim, arXiv 2511.10909, equivalence tests: for FP16 the same function as mma.sync"},
    TensorCoreModel{"hopper-wgmma", "sm_90a wgmma (H100, H200)", half_only,
                    fused_block(16, 25, fp16_nearest_even, -21), model, "MMA-Sim 2.1.1, arXiv 2511.10909"},
    TensorCoreModel{"hopper-wgmma", "sm_90a wgmma (H100, H200)", tensor_floats,
                    fused_block(8, 25, fp32_toward_zero, -133), hardware_test,
                    "MMA-Sim, arXiv 2511.10909, equivalence tests"},
    TensorCoreModel{"hopper-wgmma", "sm_90a wgmma (H100, H200)", bytes,
                    fused_block(32, 13, fp32_toward_zero_14_bits, -133), hardware,
                    "Khattak & Mikaitis, H100 and H200 captures, which ignore C; that C is cut too: MMA-Sim"},
    TensorCoreModel{"hopper-wgmma", "sm_90a wgmma (H100, H200)", bytes,
                    fused_block(32, 13, fp16_nearest_even, -21), model, "MMA-Sim 2.1.1, arXiv 2511.10909"},

    TensorCoreModel{"blackwell", "sm_100 mma.sync, sm_120 mma (B200)", halves,
                    fused_block(16, 25, fp32_toward_zero, -133), hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, B200 captures"},
    TensorCoreModel{"blackwell", "sm_100 mma.sync, sm_120 mma (B200)", half_only,
                    fused_block(16, 25, fp16_nearest_even, -21), hardware,
                    "Khattak & Mikaitis, B200 captures (block, rounding); floor: MMA-Sim 2.1.1"},
    TensorCoreModel{"blackwell", "sm_100 mma.sync, sm_120 mma (B200)", tensor_floats,
                    fused_block(8, 25, fp32_toward_zero, -133), hardware,
                    "Khattak & Mikaitis, B200 captures (bits); block of 8: MMA-Sim"},
    TensorCoreModel{"blackwell", "sm_100 mma.sync (B200)", bytes,
                    two_blocks_then_c(2, 25, fp32_toward_zero, -133), hardware,
                    "Khattak & Mikaitis, B200 captures, which tell neither bits nor the order of the blocks",
                    true},
    TensorCoreModel{"blackwell", "sm_100 mma.sync (B200)", bytes,
                    two_blocks_then_c(2, 25, fp16_nearest_even, -21), hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, B200 captures (order, not bits)", true},

    TensorCoreModel{"blackwell-tcgen05", "sm_100a tcgen05 (B200)", halves,
                    fused_block(16, 25, fp32_toward_zero, -133), model, "MMA-Sim 2.1.1, arXiv 2511.10909"},
    TensorCoreModel{"blackwell-tcgen05", "sm_100a tcgen05 (B200)", half_only,
                    fused_block(16, 25, fp16_nearest_even, -21), model, "MMA-Sim 2.1.1, arXiv 2511.10909"},
    TensorCoreModel{"blackwell-tcgen05", "sm_100a tcgen05 (B200)", tensor_floats,
                    fused_block(8, 25, fp32_toward_zero, -133), model, "MMA-Sim 2.1.1, arXiv 2511.10909"},
    TensorCoreModel{"blackwell-tcgen05", "sm_100a tcgen05, sm_120 mma", f8f6f4,
                    fused_block(32, 25, fp32_toward_zero, -133), hardware_test,
                    "MMA-Sim, arXiv 2511.10909, equivalence tests"},
    TensorCoreModel{"blackwell-tcgen05", "sm_100a tcgen05, sm_120 mma", f8f6f4,
                    fused_block(32, 25, fp16_nearest_even, -21), model, "MMA-Sim 2.1.1, arXiv 2511.10909"},

    TensorCoreModel{"avx512_bf16", "x86 vdpbf16ps (Zen 4, Zen 5, Cooper Lake, Sapphire Rapids)",
                    OperandFormats{DType::bf16}, fma_pairs(), hardware,
                    "Intel SDM, volume 2, VDPBF16PS; compared with the instruction on a Zen 5 processor"},

    // From here on the rows that tensor_core_models() leaves out: with block scales, and of FP64.
    with_scales({"blackwell-mxf8f6f4", "sm_100a tcgen05, sm_120 mma: MXFP8, MXFP6, MXFP4", f8f6f4,
                 fused_block(32, 25, fp32_toward_zero, -133), model, "MMA-Sim 2.1.1, arXiv 2511.10909"},
                1, {{{DType::e8m0, 32}}}),
    with_scales({"blackwell-mxf4nvf4", "sm_100a tcgen05, sm_120 mma: MXFP4, NVFP4 (K = 64)",
                 OperandFormats{DType::e2m1}, fused_block(64, 35, fp32_toward_zero, -139), model,
                 "MMA-Sim 2.1.1, arXiv 2511.10909"},
                16, {{{DType::ue4m3, 16}, {DType::e8m0, 16}, {DType::e8m0, 32}}}),

    fp64_chain("ampere", "sm_80 mma (A100)"),
    fp64_chain("ada", "sm_89 mma (L40S, RTX 1000 Ada)"),
    fp64_chain("hopper", "sm_90 mma (H100, H200)"),
    fp64_chain("blackwell", "sm_100, sm_120 mma (B200)"),
};
constexpr std::size_t plain_rows = [] {
  std::size_t count = 0;
  for (const TensorCoreModel& row : models) count += !row.is_scaled() && row.accumulator() != DType::f64;
  return count;
}();

// A name, and its generations: for a generation itself, for a chip with that of mma.sync first.
struct Name {
  std::string_view name;
  std::array<std::string_view, 2> generations;
  constexpr std::size_t count() const { return generations[1].empty() ? 1 : 2; }
};
constexpr std::array chips{Name{"v100", {"volta"}},
                           Name{"t4", {"turing"}},
                           Name{"a100", {"ampere"}},
                           Name{"l40s", {"ada"}},
                           Name{"rtx4090", {"ada"}},
                           Name{"h100", {"hopper", "hopper-wgmma"}},
                           Name{"h200", {"hopper", "hopper-wgmma"}},
                           Name{"b200", {"blackwell", "blackwell-tcgen05"}},
                           Name{"zen4", {"avx512_bf16"}},
                           Name{"zen5", {"avx512_bf16"}}};
constexpr bool begins_generation(std::size_t row) {
  return row == 0 || models[row].name != models[row - 1].name;
}
constexpr std::size_t generation_count = [] {
  std::size_t count = 0;
  for (std::size_t row = 0; row < plain_rows; ++row) count += begins_generation(row) ? 1 : 0;
  return count;
}();
constexpr std::size_t scaled_count = [] {
  std::size_t count = 0;
  for (const TensorCoreModel& row : models) count += row.is_scaled() ? 1 : 0;
  return count;
}();
// The generations in the order of their rows, then the chips, then the rows with block scales.
constexpr auto all_names = [] {
  std::array<Name, generation_count + chips.size() + scaled_count> all{};
  std::size_t count = 0;
  for (std::size_t row = 0; row < plain_rows; ++row)
    if (begins_generation(row)) all[count++] = Name{models[row].name, {models[row].name}};
  for (const Name& chip : chips) all[count++] = chip;
  for (const TensorCoreModel& row : models)
    if (row.is_scaled()) all[count++] = Name{row.name, {row.name}};
  return all;
}();
constexpr auto names = [] {
  std::array<std::string_view, all_names.size()> list;
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = all_names[i].name;
  return list;
}();

DType format_called(const char* what, std::span<const DType> formats, std::string_view name) {
  std::vector<std::string_view> known;
  for (const DType format : formats) {
    if (name_of(format) == name) return format;
    known.push_back(name_of(format));
  }
  throw std::invalid_argument(fmt::format("unknown {} format '{}': {}", what, name, known_are(name, known)));
}

}  // namespace

DType operand_format(std::string_view name) { return format_called("operand", dtypes<is_operand>, name); }
DType accumulator_format(std::string_view name) {
  return format_called("accumulator", accumulator_formats, name);
}

std::span<const TensorCoreModel> tensor_core_models() { return std::span(models).first(plain_rows); }
std::span<const TensorCoreModel> all_tensor_core_models() { return models; }
std::span<const std::string_view> tensor_core_names() { return std::span(names).first(generation_count); }
std::span<const std::string_view> tensor_core_chips() {
  return std::span(names).subspan(generation_count, chips.size());
}
std::span<const std::string_view> block_scaled_names() { return std::span(names).last(scaled_count); }

std::span<const std::string_view> generations_of(std::string_view name) {
  for (const Name& known : all_names)
    if (equal_but_for_case(known.name, name)) return std::span(known.generations).first(known.count());
  return {};
}

std::string scales_text(const TensorCoreModel& row) {
  std::string text;
  for (const ScaleKind& kind : row.scales)
    if (kind.block > 0)
      text += fmt::format("{}{} for {} elements", text.empty() ? "" : ", ", name_of(kind.format), kind.block);
  return text;
}

std::string stages_text(const TensorCoreModel& row) {
  std::string text;
  for (const Stage& stage : row.stages) {
    const std::string_view from = stage.entry == Entry::accumulator ? " and c"
                                  : stage.entry == Entry::zero      ? " from +0"
                                                                    : " and the sum before";
    text += text.empty() ? "" : "; ";
    if (stage.sum == Sum::addition)
      text += "c added";
    else
      text += fmt::format("{} of {} product{}{}", stage.sum == Sum::aligned ? "block" : "fma", stage.products,
                          stage.products == 1 ? "" : "s", from);
    if (stage.share.groups > 1)
      text += fmt::format(" (k / {} mod {} = {})", stage.share.run, stage.share.groups, stage.share.group);
    if (stage.exact_group > 1) text += fmt::format(", {} at a time exactly", stage.exact_group);
    if (stage.sum == Sum::aligned)
      text += fmt::format(", F {}, E0 {}", stage.fraction_bits, stage.exponent_floor);
    text += fmt::format(", {}", name_of(stage.output));
  }
  if (row.is_scaled()) text += "; scales of " + scales_text(row);
  return text;
}

void check_scales(const TensorCoreModel& row, const ScaleKind& kind, std::size_t k, std::size_t a,
                  std::size_t b) {
  const auto refuse = [&row](const std::string& what) {
    throw std::invalid_argument(fmt::format("tensor-core model '{}' {}", row.name, what));
  };
  if (!row.is_scaled()) {
    if (kind.block != 0 || a + b != 0)
      refuse(fmt::format("takes no block scales; {} do", fmt::join(block_scaled_names(), " and ")));
    return;
  }
  if (k + a + b == 0 && kind.block == 0) return;
  if (kind.block == 0) refuse(fmt::format("needs block scales of a and of b: {}", scales_text(row)));
  if (std::ranges::find(row.scales, kind) == row.scales.end())
    refuse(fmt::format("has no scales of {} for {} elements; it has {}", name_of(kind.format), kind.block,
                       scales_text(row)));
  const auto block = static_cast<std::size_t>(kind.block);
  if (k % block != 0)
    refuse(fmt::format("has one scale for {} elements: K must be a multiple of that, not {}", block, k));
  if (a != k / block || b != k / block)
    refuse(
        fmt::format("needs {} scales of each operand for K = {}; a has {} and b has {}", k / block, k, a, b));
}

bool same_function(const TensorCoreModel& a, const TensorCoreModel& b) {
  return a.stages == b.stages && a.as_fp16 == b.as_fp16 && a.scales == b.scales &&
         a.subnormal_accumulator == b.subnormal_accumulator && a.underflow_zero == b.underflow_zero;
}

const TensorCoreModel& tensor_core_model(std::string_view name, DType operands, DType accumulator) {
  const std::span<const std::string_view> generations = generations_of(name);
  if (generations.empty())
    throw std::invalid_argument(
        fmt::format("unknown tensor-core model '{}': {}", name, known_are(name, names)));
  std::vector<const TensorCoreModel*> rows;
  std::vector<std::string> possible;
  for (const TensorCoreModel& row : models) {
    if (std::ranges::find(generations, row.name) == generations.end()) continue;
    if (row.operands.contains(operands) && row.accumulator() == accumulator) rows.push_back(&row);
    for (const DType format : dtypes<is_floating>)
      if (row.operands.contains(format))
        possible.push_back(fmt::format("{} with {}", name_of(format), name_of(row.accumulator())));
  }
  if (rows.empty())
    throw std::invalid_argument(
        fmt::format("tensor-core model '{}' has no {} operands with {} accumulators; it has {}", name,
                    name_of(operands), name_of(accumulator), fmt::join(possible, ", ")));
  for (const TensorCoreModel* const other : rows)
    if (!same_function(*rows.front(), *other))
      throw std::invalid_argument(fmt::format(
          "tensor-core model '{}' has two rows for {} operands with {} accumulators, which give different "
          "bits: {} ({}) and {} ({}); name one of them",
          name, name_of(operands), name_of(accumulator), rows.front()->name, rows.front()->hardware,
          other->name, other->hardware));
  return *rows.front();
}

DType usual_operands(std::string_view name, DType accumulator) {
  const auto generations = generations_of(name);
  for (const DType format : dtypes<is_operand>)  // f16 before others
    for (const TensorCoreModel& row : models)
      if (std::ranges::find(generations, row.name) != generations.end() && row.operands.contains(format) &&
          row.accumulator() == accumulator)
        return format;
  return DType::f16;
}

const TensorCoreModel& tensor_core_model(std::string_view name, DType a, DType b, DType accumulator) {
  const TensorCoreModel& model = tensor_core_model(name, a, accumulator);
  if (!model.operands.contains(b))
    throw std::invalid_argument(
        fmt::format("tensor-core model '{}' multiplies no {} by {}", name, name_of(a), name_of(b)));
  return model;
}

std::string_view tensor_core_of(int capability_major, int capability_minor) {
  switch (capability_major) {
    case 7:
      return capability_minor >= 5 ? "turing" : "volta";
    case 8:
      return capability_minor == 9 ? "ada" : "ampere";
    case 9:
      return "hopper";
    case 10:
    case 11:
    case 12:
      return "blackwell";
    default:
      return "";
  }
}

}  // namespace fp16lab
