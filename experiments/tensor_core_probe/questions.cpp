// What the answers to the questions of experiments/capture/questions.hpp may be: a row for each probe, its
// claim and its hypotheses. The hypothesis with the words of the table's row is the claim.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "experiments/tensor_core_probe/question.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::probe {
namespace {

using Row = TensorCoreModel;
using Operands = std::span<const std::uint32_t>;
/// What follows from a row where the row alone cannot say it.
using Derived = std::function<std::uint32_t(const DotProduct& row, Operands a, Operands b, std::uint32_t c)>;

struct Rival {
  std::string name;
  Row row;
  std::string change = {};  ///< what the table must say; empty: what differs between the rows
  Derived derived = {};
};

template <class Change>
Rival rival(std::string name, Row row, const Change& change) {
  change(row);
  return {std::move(name), row};
}

/// The products in another order along k: those in the first block, then the others, each ascending.
Derived reordered(std::size_t k, const std::function<bool(std::size_t)>& in_first) {
  std::vector<std::size_t> order(k);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_partition(order, in_first);
  return [order](const DotProduct& row, Operands a, Operands b, std::uint32_t c) {
    Words x, y;
    for (const std::size_t place : order) {
      x.push_back(a[place]);
      y.push_back(b[place]);
    }
    return row(x, y, c);
  };
}

/// P12: blocks and bits.
std::vector<Rival> tails(const Instruction&, const Row& row) {
  std::vector<Rival> list;
  for (const int block : {8, 4, 2})
    for (const int bits : {24, 25})
      list.push_back(rival(fmt::format("L = {}, F = {}", block, bits), row, [=](Row& other) {
        other.set(&Stage::products, block);
        other.set(&Stage::fraction_bits, bits);
      }));
  return list;
}

/// P1, P6: every exponent floor that vectors seen down to 2^-last can tell apart: a term 2^-m survives
/// exactly if m <= F - E0, and E0 itself is above every product.
std::vector<Rival> floors(const Row& row, int first, int last) {
  std::vector<Rival> list;
  for (int last_kept = first; last_kept <= last; ++last_kept) {
    const int floor = row.block().fraction_bits - last_kept;  // of the last one and of all that are lower
    list.push_back(rival(fmt::format("E0 {} {}", last_kept == last ? "<=" : "=", floor), row,
                         [=](Row& other) { other.set(&Stage::exponent_floor, floor); }));
  }
  return list;
}

std::vector<Rival> subnormal_accumulators(const Instruction&, const Row& row) {
  using enum SubnormalAccumulator;
  return {rival("emin", row, [](Row& other) { other.subnormal_accumulator = emin; }),
          rival("own exponent (Khattak & Mikaitis)", row,
                [](Row& other) { other.subnormal_accumulator = own_exponent; })};
}

std::vector<Rival> underflow_zeros(const Instruction&, const Row& row) {
  using enum UnderflowZero;
  return {rival("+0", row, [](Row& other) { other.underflow_zero = positive; }),
          rival("-0 (Khattak & Mikaitis)", row, [](Row& other) { other.underflow_zero = keeps_sign; })};
}

/// P4: IEEE 754 gives -0 where all terms are -0; the SMT model of Valpey et al. also for cancellation.
std::vector<Rival> zero_signs(const Instruction& in, const Row& row) {
  const auto minus_zero_if = [&in](bool all_are_minus_zero) -> Derived {
    return [=, sign = in.operands.minus_zero(), c_sign = in.accumulator.minus_zero()](
               const DotProduct& dot, Operands a, Operands b, std::uint32_t c) {
      bool all = true, any_but_plus_zero = false;  // of finite terms
      const auto add = [&](bool negative, bool zero) {
        all = all && negative && zero;
        any_but_plus_zero = any_but_plus_zero || negative || !zero;
      };
      for (std::size_t i = 0; i < a.size(); ++i)
        add(((a[i] ^ b[i]) & sign) != 0, (a[i] & ~sign) == 0 || (b[i] & ~sign) == 0);
      add((c & c_sign) != 0, (c & ~c_sign) == 0);
      const std::uint32_t word = dot(a, b, c);
      return word == 0 && (all_are_minus_zero ? all : any_but_plus_zero) ? c_sign : word;
    };
  };
  const std::string change = "the model needs a sign for exact zeros ";
  return {{"always +0", row},
          {"IEEE", row, change + "(-0 where all terms are -0)", minus_zero_if(true)},
          {"SMT", row, change + "(-0 from cancellation and from any -0 term)", minus_zero_if(false)}};
}

std::vector<Rival> blocks_of_tf32(const Instruction& in, const Row& row) {
  std::vector<Rival> list;
  for (const int block : {8, 4, 2, 1})
    list.push_back(
        rival(fmt::format("L = {}", block), row, [=](Row& other) { other.set(&Stage::products, block); }));
  const Row four = list[1].row;
  list.push_back({"L = 4, even k first", four, "stages with blocks of 4, even k first",
                  reordered(in.k, [](std::size_t k) { return k % 2 == 0; })});
  list.push_back({"L = 4, k mod 4 in {0,1} first", four, "stages with blocks of 4, k mod 4 in {0,1} first",
                  reordered(in.k, [](std::size_t k) { return k % 4 < 2; })});
  return list;
}

/// P7: in which order mma.sync adds 32 FP8 products where it is no FP8 unit, and where c joins.
std::vector<Rival> fp8_orders_of(const Instruction& in, const Row& row) {
  const bool half = in.accumulator == f16;
  const int floor = row.block().exponent_floor;
  const BlockOutput wide = half ? BlockOutput::fp16_nearest_even : BlockOutput::fp32_toward_zero;
  const BlockOutput narrow = half ? wide : BlockOutput::fp32_toward_zero_14_bits;
  const auto with = [&](const char* name, const Stages& stages, bool as_fp16) {
    return rival(name, row, [&](Row& other) {
      other.stages = stages;
      other.as_fp16 = as_fp16;
    });
  };
  std::vector<Rival> list{with("FP16 pairs, c last", two_blocks_then_c(2, 25, wide, floor), true),
                          with("FP16 halves, c last", two_blocks_then_c(16, 25, wide, floor), true),
                          with("native, L = 32, F = 25", fused_block(32, 25, wide, floor), false),
                          with("native, L = 32, F = 13", fused_block(32, 13, narrow, floor), false),
                          with("native, L = 16, F = 13", fused_block(16, 13, narrow, floor), false)};
  const Row halves = list[1].row;
  const Row chain = with("", fused_block(16, 25, wide, floor), false).row;  // two FP16 blocks from c
  const auto add = [&](std::string name, const Row& blocks, const std::function<bool(std::size_t)>& first) {
    list.push_back({name, blocks, "other stages, " + name, reordered(in.k, first)});
  };
  add("FP16, k mod 4 in {2,3} first, c last", halves, [](std::size_t k) { return k % 4 >= 2; });
  add("FP16, k >= 16 first, c last", halves, [](std::size_t k) { return k >= 16; });
  add("FP16, even k first, c last", halves, [](std::size_t k) { return k % 2 == 0; });
  add("FP16, odd k first, c last", halves, [](std::size_t k) { return k % 2 == 1; });
  add("FP16 pairs, c first", chain, [](std::size_t k) { return k % 4 < 2; });
  add("FP16 halves, c first", chain, [](std::size_t k) { return k < 16; });
  return list;
}

std::vector<Rival> unread_accumulators(const Instruction& in, const Row& row) {
  const std::uint32_t infinity = in.accumulator.infinity(), nan = in.accumulator == f16 ? 0x7fff : 0x7fffffff;
  return {{"C ignored", row, "",
           [](const DotProduct& dot, Operands a, Operands b, std::uint32_t) { return dot(a, b, 0); }},
          {"0 * C", row, "a loop that starts with scale-d = 0 must be emulated from 0 * C, not from +0",
           [=](const DotProduct& dot, Operands a, Operands b, std::uint32_t c) {
             return (c & infinity) == infinity ? nan : dot(a, b, 0);
           }},
          {"C counts", row, "scale-d = 0 must be emulated like scale-d = 1"}};
}

std::vector<Rival> truncated_accumulators(const Instruction&, const Row& row) {
  const auto with = [&](const char* name, int bits, BlockOutput output) {
    return rival(name, row, [=](Row& other) {
      other.set(&Stage::fraction_bits, bits);
      other.set(&Stage::output, output);
    });
  };
  using enum BlockOutput;
  return {with("c aligned", 13, fp32_toward_zero_14_bits),
          {"c added last, RNE", row, "stages in which c is added last, in FP32",
           [](const DotProduct& dot, Operands a, Operands b, std::uint32_t c) {
             return bits_of(canonicalize(float_from_bits(dot(a, b, 0)) + float_from_bits(c)));
           }},
          with("F = 25, RZ-FP32", 25, fp32_toward_zero),
          with("F = 13, 24-bit result", 13, fp32_toward_zero),
          with("F = 25, 14-bit result", 25, fp32_toward_zero_14_bits)};
}

/// What the table must say.
std::string change_text(const Instruction& in, const Row& claim, const Rival& rival) {
  const Stage &ours = claim.block(), &other = rival.row.block();
  std::string text = fmt::format("row '{}' with {} operands, {} accumulator:", claim.name, in.operands.name,
                                 in.accumulator.name);
  if (!rival.change.empty()) return text + ' ' + rival.change;
  for (const auto& [name, number] : {std::pair{"block_size", &Stage::products},
                                     {"fraction_bits", &Stage::fraction_bits},
                                     {"exponent_floor", &Stage::exponent_floor}})
    if (other.*number != ours.*number) text += fmt::format(" {} {} -> {}", name, ours.*number, other.*number);
  if (other.output != ours.output) text += fmt::format(" output -> {}", name_of(other.output));
  if (rival.row.stages.size() != claim.stages.size() || other.share != ours.share)
    text += " stages -> " + stages_text(rival.row);
  if (rival.row.subnormal_accumulator != claim.subnormal_accumulator)
    text += fmt::format(" subnormal_accumulator -> {}", name_of(rival.row.subnormal_accumulator));
  if (rival.row.underflow_zero != claim.underflow_zero)
    text += fmt::format(" underflow_zero -> {}", name_of(rival.row.underflow_zero));
  return text;
}

/// In a claim {name} is the instruction, {L}, {F} and {E0} are the row's, and {claimed} the hypothesis with
/// its words.
struct Probe {
  std::string_view name;
  const char* claim;
  std::vector<Rival> (*rivals)(const Instruction&, const Row&);
};
constexpr Probe probes[] = {
    {"P1", "{name}: exponent floor E0 = {E0} (MMA-Sim 2.1.1)",
     [](const Instruction&, const Row& row) { return floors(row, 40, 48); }},
    {"P2", "{name}: a subnormal c has exponent -14 (MMA-Sim)", subnormal_accumulators},
    {"P3", "{name}: a negative sum that rounds to zero gives +0 (MMA-Sim 2.1.1)", underflow_zeros},
    {"P4", "{name}: zero sums are +0, also from -0 terms and cancellation", zero_signs},
    {"P5", "{name}: {L} products in a fused block", blocks_of_tf32},
    {"P6", "{name}: exponent floor E0 = {E0}",
     [](const Instruction&, const Row& row) { return floors(row, 154, 160); }},
    {"P7", "{name}: {claimed}", fp8_orders_of},
    {"P10", "{name}: scale-d = 0 ignores NaN and infinity in D", unread_accumulators},
    {"P11", "{name}: c is aligned to {F} fraction bits like a product", truncated_accumulators},
    {"P12", "{name}: one fused block of {L} products with {F} fraction bits", tails}};

Question question_of(const QuestionRow& asked, const Instruction& in, const Row& row,
                     const Settings& settings) {
  const Probe& probe = *std::ranges::find(probes, std::string_view(asked.probe), &Probe::name);
  Question question{asked.probe, {}, in, vectors_of(asked, in), {}};
  question.scale_d = probe.name != "P10";
  if (probe.name == "P7") question.random_outputs = std::max<std::uint64_t>(settings.random_outputs / 20, 1);

  const auto words = [&](const DotProduct& dot, bool reads_c) {
    Words list;
    for (const Vector& vector : question.vectors)
      list.push_back(dot(vector.a, vector.b, reads_c ? vector.c : 0));
    return list;
  };
  const DotProduct table = dot_product_of(row, in.operands);
  const Words claimed = words(table, question.scale_d);
  bool is_known = false;
  for (const Rival& rival : probe.rivals(in, row)) {
    DotProduct predict = dot_product_of(rival.row, in.operands);
    if (rival.derived)
      predict = [dot = std::move(predict), derived = rival.derived](Operands a, Operands b, std::uint32_t c) {
        return derived(dot, a, b, c);
      };
    const bool is_claim = words(predict, true) == claimed;
    if (is_claim && question.scale_d) predict = table;
    question.hypotheses.insert(is_claim ? question.hypotheses.begin() : question.hypotheses.end(),
                               {rival.name, change_text(in, row, rival), std::move(predict)});
    is_known = is_known || is_claim;
  }
  if (!is_known)
    question.hypotheses.insert(question.hypotheses.begin(), {"another one, which the table has", "", table});
  question.claim =
      fmt::format(fmt::runtime(probe.claim), fmt::arg("name", in.name),
                  fmt::arg("L", std::min(row.block().products, static_cast<int>(in.k))),
                  fmt::arg("F", row.block().fraction_bits), fmt::arg("E0", row.block().exponent_floor),
                  fmt::arg("claimed", question.hypotheses.front().name));
  return question;
}

}  // namespace

std::vector<Question> tensor_core_questions(Capability capability, const Settings& settings) {
  std::vector<Question> questions;
  for (const QuestionRow& asked : question_rows())
    for (const char* name : asked.instructions) {
      const Instruction& in = instruction(name);
      if (const std::optional<Row> row = row_for(in, capability, settings.generation))
        questions.push_back(question_of(asked, in, *row, settings));
    }
  return questions;
}

}  // namespace fp16lab::probe
