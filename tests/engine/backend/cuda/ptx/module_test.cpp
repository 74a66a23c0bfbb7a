// Which modules the machine reads, which it refuses, and all kernels of the back end.
#include <cstdlib>

#include "tests/engine/backend/cuda/ptx/small_kernel.hpp"
#include "tests/machines/ptx/texts.hpp"

namespace fp16lab::engine::ptx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Why a kernel of these instructions cannot be decoded; empty if it can.
std::string refusal(const std::string& body) {
  DeviceMemory memory;
  Program program(memory);
  program.add("small.ptx", SmallKernel{.body = body}.text());
  try {
    program.facts(*program.find("small"));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

TEST(PtxModule, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> cases[] = {
      {"add.ftz.f32 %f1, %f1, %f2;", "'add.ftz.f32'"},
      {"add.f32 %f1, %f1, %f2;", "'add.f32'"},  // without .rn it may be contracted
      {"add.rz.f32 %f1, %f1, %f2;", "'add.rz.f32'"},
      {"mul.rn.ftz.f32 %f1, %f1, %f2;", "'mul.rn.ftz.f32'"},
      {"div.full.f32 %f1, %f1, %f2;", "'div.full.f32'"},
      {"ex2.approx.f32 %f1, %f1;", "'ex2.approx.f32'"},
      {"sin.approx.f32 %f1, %f1;", "'sin.approx.f32'"},
      {"red.global.add.f32 [%d1], %f1;", "'red.global.add.f32'"},
      {"atom.global.add.f32 %f1, [%d1], %f1;", "'atom.global.add.f32'"},
      {"cvt.rn.sat.f16.f32 %h1, %f1;", "'cvt.rn.sat.f16.f32'"},
      {"cvt.f32.f64 %f1, %e1;", "'cvt.f32.f64'"},
      {"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, "
       "{%r1, %r2};",
       "'mma.sync.aligned.m16n8k16.row.col.f16"},
      {"add.s32 %r1, %r2, %d1;", "register '%d1' has 64 bits"},
      {"add.s64 %d1, %d2, %r1;", "register '%r1' has 32 bits"},
      {"add.s32 %r1, %r99, 1;", "'%r99'"},
      {"add.s32 %r1, %r2;", "2 operands; the instruction takes 3"},
      {"mov.f32 %f1, 1;", "where a floating-point number has to stand"},
      {"bra $nowhere;", "no label '$nowhere'"},
      {"$a: $a: ret;", "label '$a' stands twice"},
      {"bar.sync 1;", "a barrier other than 0"},
      {"ld.shared.u32 %r1, [small_0];", "another space"},
      {"ld.global.u32 %h1, [%d1];", "has 16 bits"},
      {"mov.u32 %r1, %clock;", "'%clock'"},
      {"selp.u32 %r1, 1, 0, !%p1;", "a !"},
      {".loc 1 2 3;", "'.loc'"},
      {"cp.async.cg.shared.global [%r1], [%d1], 8;", "a copy of 8 bytes"}};
  for (const auto& [body, why] : cases)
    EXPECT_THAT(refusal(body), AllOf(HasSubstr("small.ptx:22: "), HasSubstr(why))) << body;
  EXPECT_EQ(refusal("add.s32 %r1, %r2, 1;"), "");
}

TEST(PtxModule, KnowsWhatAKernelDeclares) {
  DeviceMemory memory;
  Program program(memory);
  const std::string text =
      ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 a, .param .align 8 .b8 "
      "b[24], .param .u8 c)\n"
      ".maxntid 128, 1, 1\n.minnctapersm 4\n{\n.shared .align 4 .b8 x[6];\n.shared .align 16 .b8 "
      "y[32];\n.local .align 8 .b8 z[12];\nret;\n}\n";
  program.add("one.ptx", text);
  program.add("two.ptx", text);  // the same kernel once more
  EXPECT_EQ(program.names(), std::vector<std::string>{"k"});
  EXPECT_EQ(program.architecture(), 80);
  const KernelFacts facts = program.facts(*program.find("k"));
  EXPECT_EQ(facts.static_shared_bytes, 48u);
  EXPECT_EQ(facts.local_bytes, 12u);
  EXPECT_EQ(facts.max_threads, 128u);
  EXPECT_EQ(facts.parameter_offsets, (std::vector<std::size_t>{0, 8, 32}));
  EXPECT_EQ(facts.parameter_bytes, (std::vector<std::size_t>{4, 24, 1}));
  EXPECT_EQ(program.find("other"), nullptr);
  EXPECT_THROW(program.add("three.ptx", ".version 9.0\n.target sm_90\n"), std::invalid_argument);
  EXPECT_THROW(program.add("four.ptx", ".func f;"), std::invalid_argument);

  Machine machine(memory, {});
  const std::uint64_t zeros[4] = {};
  const void* const parameters[] = {zeros, zeros, zeros};
  machine.launch(*program.find("k"), {.block_x = 128}, parameters);
  EXPECT_THROW(machine.launch(*program.find("k"), {.block_x = 129}, parameters), std::invalid_argument);
  EXPECT_THROW(machine.launch(*program.find("k"), {.block_x = 0}, parameters), std::invalid_argument);
  EXPECT_THROW(machine.launch(*program.find("k"), {.y = 65536}, parameters), std::invalid_argument);
  EXPECT_THROW(machine.launch(*program.find("k"), {.dynamic_shared_bytes = 163 * 1024}, parameters),
               std::invalid_argument);
}

/// Every kernel of the texts of FP16LAB_PTX has to consist of instructions of the table.
TEST(PtxModule, DecodesAllKernelsOfTheTexts) {
  const char* const places = std::getenv("FP16LAB_PTX");
  if (places == nullptr) GTEST_SKIP() << "FP16LAB_PTX names no PTX";
  DeviceMemory memory;
  Program program(memory);
  for (const auto& [file, text] : ptx_texts(places)) program.add(file, text);
  const auto names = program.names();
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) {
    try {
      program.facts(*program.find(name));
    } catch (const std::invalid_argument& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace fp16lab::engine::ptx
