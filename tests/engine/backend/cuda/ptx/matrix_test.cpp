// Matrix loads and products of tensor cores, on numbers and on terms.
#include <algorithm>
#include <bit>
#include <set>

#include "tests/engine/backend/cuda/ptx/small_kernel.hpp"
#include "tests/engine/backend/cuda/ptx/symbolic.hpp"

namespace fp16lab::engine::ptx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A kernel of one warp with `words` of input and so many words of output a lane.
struct WarpKernel {
  std::string body = {}, variables = {};
  std::vector<std::uint32_t> input = {};
  int outputs = 4;
  Machine::Options options = {};
  std::uint32_t threads = 32;

  std::vector<std::uint32_t> run() {
    DeviceMemory memory;
    Program program(memory);
    program.add("warp.ptx",
                fmt::format(".version 9.0\n.target sm_80\n.address_size 64\n.entry warp(.param .u64 out, "
                            ".param .u64 in)\n{{\n.reg .pred %p<8>;\n"
                            ".reg .b32 %r<64>;\n.reg .f32 %f<16>;\n.reg .b64 %d<16>;\n{}\nld.param.u64 %d0, "
                            "[out];\nld.param.u64 %d1, [in];\nmov.u32 %r0, %tid.x;\n"
                            "mul.wide.u32 %d2, %r0, {};\nadd.s64 %d0, %d0, %d2;\n{}\nret;\n}}\n",
                            variables, 4 * outputs, body));
    const std::size_t words = static_cast<std::size_t>(outputs) * 32;
    std::byte* const out = memory.allocate(4 * words, "output");
    std::byte* const in = memory.allocate(4 * input.size() + 4, "input");
    std::copy(input.begin(), input.end(), reinterpret_cast<std::uint32_t*>(in));
    Machine machine(memory, options);
    const void* const parameters[] = {&out, &in};
    machine.launch(*program.find("warp"), {.block_x = threads}, parameters);
    std::vector<std::uint32_t> results(words);
    std::memcpy(results.data(), out, 4 * words);
    return results;
  }
};

// Lane l stores row l of 16 bytes; element (row, column) of all 32 is 100 * row + column. 6553700 = 65537 *
// 100.
constexpr const char* fill_rows =
    "shl.b32 %r1, %r0, 4; mov.u32 %r2, rows; add.s32 %r1, %r1, %r2; mul.lo.s32 %r3, %r0, 6553700; add.s32 "
    "%r3, %r3, 65536;"
    "add.s32 %r4, %r3, 131074; add.s32 %r5, %r4, 131074; add.s32 %r6, %r5, 131074; st.shared.v4.u32 [%r1], "
    "{%r3, %r4, %r5, %r6};";

TEST(PtxMatrices, LoadsGiveRowsAndColumns) {
  for (const bool transposed : {false, true}) {
    // The pair (2 t, 2 t + 1) of row r is 65536 * (100 r + 2 t + 1) + 100 r + 2 t.
    WarpKernel kernel{.body = fmt::format("{} bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 "
                                          "{{%r10, %r11, %r12, %r13}}, [%r1];"
                                          "st.global.v4.u32 [%d0], {{%r10, %r11, %r12, %r13}};",
                                          fill_rows, transposed ? ".trans" : ""),
                      .variables = ".shared .align 16 .b8 rows[512];"};
    const auto words = kernel.run();
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint32_t g = lane / 4, t = lane % 4;
        const auto element = [&](std::uint32_t row, std::uint32_t column) {
          return 100 * (8 * i + row) + column;
        };
        const std::uint32_t low = transposed ? element(2 * t, g) : element(g, 2 * t),
                            high = transposed ? element(2 * t + 1, g) : element(g, 2 * t + 1);
        EXPECT_EQ(words[4 * lane + i], low | high << 16) << lane << " " << i << " " << transposed;
      }
    kernel.body.erase(kernel.body.find("bar.warp.sync -1;"), 17);
    EXPECT_THROW(kernel.run(), Fault);  // a race
  }
}

TEST(PtxMatrices, LoadsCheckTheirRows) {
  for (const auto& [address, why] :
       {std::pair{"%r1+8", "not aligned to 16"}, {"%r1+16", "the block has 512 bytes"}}) {
    WarpKernel kernel{
        .body = fmt::format(
            "{} bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10, %r11, %r12, %r13}}, [{}];",
            fill_rows, address),
        .variables = ".shared .align 16 .b8 rows[512];"};
    EXPECT_THAT([&] { kernel.run(); }, ::testing::ThrowsMessage<Fault>(HasSubstr(why)));
  }
}

struct Shape {
  const char* name;
  const char* format;
  DType dtype;
  int k, a_registers, b_registers;
};
constexpr Shape shapes[] = {
    {"m16n8k16", "f16", DType::f16, 16, 4, 2}, {"m16n8k16", "bf16", DType::bf16, 16, 4, 2},
    {"m16n8k8", "f16", DType::f16, 8, 2, 1},   {"m16n8k8", "bf16", DType::bf16, 8, 2, 1},
    {"m16n8k8", "tf32", DType::tf32, 8, 4, 2}, {"m16n8k4", "tf32", DType::tf32, 4, 2, 1}};

/// mma of registers that are loaded one after the other: input[32 * register + lane], those of a, b and c.
WarpKernel multiplying(const Shape& shape) {
  std::string body = "mul.wide.u32 %d3, %r0, 4; add.s64 %d3, %d3, %d1;";
  const int count = shape.a_registers + shape.b_registers;
  for (int i = 0; i < count; ++i) body += fmt::format("ld.global.u32 %r{}, [%d3+{}];", 10 + i, 128 * i);
  for (int i = 0; i < 4; ++i) body += fmt::format("ld.global.f32 %f{}, [%d3+{}];", i, 128 * (count + i));
  const auto list = [](int first, int size) {
    std::string text = fmt::format("%r{}", first);
    for (int i = 1; i < size; ++i) text += fmt::format(", %r{}", first + i);
    return text;
  };
  body += fmt::format(
      "mma.sync.aligned.{}.row.col.f32.{}.{}.f32 {{%f4, %f5, %f6, %f7}}, {{{}}}, {{{}}}, {{%f0, %f1, %f2, "
      "%f3}}; st.global.v4.f32 [%d0], {{%f4, %f5, %f6, %f7}};",
      shape.name, shape.format, shape.format, list(10, shape.a_registers),
      list(10 + shape.a_registers, shape.b_registers));
  WarpKernel kernel{.body = body,
                    .input = std::vector<std::uint32_t>(static_cast<std::size_t>(32 * (count + 4)))};
  kernel.options.f16 = &tensor_core_model("ampere", DType::f16);
  kernel.options.bf16 = &tensor_core_model("ampere", DType::bf16);
  kernel.options.tf32 = &tensor_core_model("ampere", DType::tf32);
  return kernel;
}

/// Row (or column) and k of element i of register r in A and in B, by the tables of PTX ISA 9.7.14.5.8.
struct Place {
  int outer, k;
};
Place place_in_a(const Shape& shape, int lane, int r, int i) {
  const int group = lane >> 2, thread = lane % 4;
  if (shape.dtype == DType::tf32)  // a0: (g, t), a1: (g + 8, t), a2: (g, t + 4), a3: (g + 8, t + 4)
    return {r == 0 || r == 2 ? group : group + 8, r < 2 ? thread : thread + 4};
  const int a = 2 * r + i;  // a0, a1, ..: over all elements
  return {a < 2 || (a >= 4 && a < 6) ? group : group + 8, thread * 2 + (a & 1) + (a < 4 ? 0 : 8)};
}
Place place_in_b(const Shape& shape, int lane, int r, int i) {
  const int group = lane >> 2, thread = lane % 4;
  if (shape.dtype == DType::tf32) return {group, thread + 4 * r};
  return {group, thread * 2 + i + (r == 0 ? 0 : 8)};
}

std::uint32_t small_integer(DType dtype, int x) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  if (dtype == DType::tf32) return bits;
  if (dtype == DType::bf16) return bits >> 16;
  if (x == 0) return 0;
  return (bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 112) << 10) | (bits >> 13 & 0x3ff);
}

/// Puts `value(outer, k)` into the registers from `first` on.
template <class PlaceOf, class Value>
void put(WarpKernel& kernel, const Shape& shape, int first, int registers, PlaceOf place_of, Value value) {
  const int elements = shape.dtype == DType::tf32 ? 1 : 2;
  for (int r = 0; r < registers; ++r)
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < elements; ++i) {
        const Place place = place_of(shape, lane, r, i);
        kernel.input[static_cast<std::size_t>(32 * (first + r) + lane)] |=
            static_cast<std::uint32_t>(value(place.outer, place.k)) << (16 * i);
      }
}

TEST(PtxMatrices, ProductsOfSmallIntegersAreExact) {
  for (const Shape& shape : shapes) {
    WarpKernel kernel = multiplying(shape);
    const auto a = [](int m, int k) { return (7 * m + 3 * k) % 11 - 5; };
    const auto b = [](int n, int k) { return (5 * n + 2 * k) % 13 - 6; };
    put(kernel, shape, 0, shape.a_registers, place_in_a,
        [&](int m, int k) { return small_integer(shape.dtype, a(m, k)); });
    put(kernel, shape, shape.a_registers, shape.b_registers, place_in_b,
        [&](int n, int k) { return small_integer(shape.dtype, b(n, k)); });
    for (int i = 0; i < 4; ++i)
      for (int lane = 0; lane < 32; ++lane)
        kernel.input[static_cast<std::size_t>(32 * (shape.a_registers + shape.b_registers + i) + lane)] =
            std::bit_cast<std::uint32_t>(static_cast<float>(lane + 100 * i));
    const auto words = kernel.run();
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
        int sum = lane + 100 * i;
        for (int k = 0; k < shape.k; ++k) sum += a(row, k) * b(column, k);
        EXPECT_EQ(std::bit_cast<float>(words[static_cast<std::size_t>(4 * lane + i)]),
                  static_cast<float>(sum))
            << shape.name << " " << shape.format;
      }
  }
}

TEST(PtxMatrices, BlocksAreThoseOfTheRow) {
  // 2^24 + 1 - 2^24: a block of 16 products keeps the 1 below the largest term only if the row has the bits
  // for it; in two blocks of 8 it is gone where the first sum is rounded.
  const Shape& shape = shapes[0];
  for (const char* generation : {"ampere", "hopper"}) {
    WarpKernel kernel = multiplying(shape);
    kernel.options.f16 = &tensor_core_model(generation, DType::f16);
    put(kernel, shape, 0, 4, place_in_a, [](int, int k) {
      return k == 0 ? 0x6c00u : k == 8 ? 0xec00u : k == 1 ? 0x3c00u : 0u;
    });
    put(kernel, shape, 4, 2, place_in_b, [](int, int k) {
      return k == 0 || k == 8 ? 0x6c00u : k == 1 ? 0x3c00u : 0u;
    });
    std::vector<std::uint32_t> a(16), b(16);
    a[0] = b[0] = b[8] = 0x6c00, a[8] = 0xec00, a[1] = b[1] = 0x3c00;
    const std::uint32_t expected = fused_dot_add(*kernel.options.f16, DType::f16, a, DType::f16, b, 0);
    for (const std::uint32_t word : kernel.run()) EXPECT_EQ(word, expected) << generation;
  }
}

TEST(PtxMatrices, NeedTheirRowAndAllLanes) {
  WarpKernel kernel = multiplying(shapes[0]);
  kernel.options.f16 = nullptr;
  EXPECT_THROW(kernel.run(), Fault);
  kernel = multiplying(shapes[0]);
  kernel.threads = 31;
  EXPECT_THROW(kernel.run(), Fault);
  kernel = multiplying(shapes[0]);
  kernel.body = "setp.eq.s32 %p1, %r0, 3; @%p1 ret;" + kernel.body;
  EXPECT_THROW(kernel.run(), Fault);
}

TEST(PtxTerms, OfAnInstructionAreItsProductsInOrder) {
  for (const Shape& shape : shapes)
    for (const char* generation : {"ampere", "hopper"}) {
      WarpKernel kernel = multiplying(shape);
      Symbolic terms;
      kernel.options.terms = &terms;
      kernel.options.f16 = &tensor_core_model(generation, DType::f16);
      kernel.options.bf16 = &tensor_core_model(generation, DType::bf16);
      kernel.options.tf32 = &tensor_core_model(generation, DType::tf32);
      const auto size = static_cast<std::size_t>(tensor_core_model(generation, shape.dtype).block().products);
      put(kernel, shape, 0, shape.a_registers, place_in_a, [](int m, int k) { return 1000 + 16 * m + k; });
      put(kernel, shape, shape.a_registers, shape.b_registers, place_in_b,
          [](int n, int k) { return 2000 + 16 * n + k; });
      for (std::uint32_t i = 0; i < 128; ++i) kernel.input[kernel.input.size() - 128 + i] = 3000 + i;
      const auto words = kernel.run();
      for (std::uint32_t lane = 0; lane < 32; ++lane)
        for (std::uint32_t i = 0; i < 4; ++i) {
          const std::uint32_t row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
          std::uint32_t begin = 0;
          const auto blocks = terms.chain(words[4 * lane + i], begin);
          EXPECT_EQ(begin, 3000 + 32 * i + lane);
          std::uint32_t k = 0;
          for (const auto& block : blocks) {
            EXPECT_EQ(block.size(), std::min(size, static_cast<std::size_t>(shape.k)));
            for (const Symbolic::Product product : block) {
              EXPECT_EQ(product, (Symbolic::Product{1000 + 16 * row + k, 2000 + 16 * column + k}));
              ++k;
            }
          }
          EXPECT_EQ(k, static_cast<std::uint32_t>(shape.k));
        }
    }
}

TEST(PtxTerms, AreMadeByEveryFloatingPointInstruction) {
  Symbolic terms;
  SmallKernel kernel{
      .body =
          "mov.u32 %r5, 5; mov.b32 %f1, %r5; mov.u32 %r5, 6; mov.b32 %f2, %r5; mov.u32 %r5, 7; "
          "mov.b32 %f3, %r5; fma.rn.f32 %f4, %f1, %f2, %f3; add.rn.f32 %f5, %f4, %f1;"
          "cvt.rn.f16.f32 %h1, %f5; fma.rn.f32 %f6, %f2, %f2, %f4; mov.b32 %r1, %f6; "
          "st.global.u32 [%d0], %r1; st.global.u16 [%d0+4], %h1;",
      .threads = 1};
  kernel.options.terms = &terms;
  const std::uint64_t slot = kernel.run()[0];
  std::uint32_t begin = 0;
  const auto blocks = terms.chain(static_cast<std::uint32_t>(slot), begin);
  EXPECT_EQ(begin, 7u);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0], (std::vector<Symbolic::Product>{{5, 6}}));
  EXPECT_EQ(blocks[1], (std::vector<Symbolic::Product>{{6, 6}}));
  const Symbolic::Term* const rounded = terms.find_half(static_cast<std::uint16_t>(slot >> 32));
  ASSERT_NE(rounded, nullptr);
  EXPECT_EQ(rounded->opcode, "cvt");
  const Symbolic::Term* const sum = terms.find(static_cast<std::uint32_t>(rounded->operands[0]));
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->opcode, "add");
  EXPECT_EQ(sum->operands[1], 5u);
  kernel.body = "setp.lt.f32 %p1, %f1, %f2;";
  EXPECT_THAT(kernel.fault(), HasSubstr("a comparison of terms"));
}

}  // namespace
}  // namespace fp16lab::engine::ptx
