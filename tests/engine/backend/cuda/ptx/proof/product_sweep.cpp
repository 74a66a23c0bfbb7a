#include "tests/engine/backend/cuda/ptx/proof/product_sweep.hpp"

#include <algorithm>

namespace fp16lab::engine::ptx::test {

namespace {

/// What the tensor cores of the architecture multiply, and fma.
std::vector<DType> multiplied_by(int architecture) {
  if (architecture < 80) return {DType::f16, DType::f32};
  return {DType::f16, DType::bf16, DType::tf32, DType::f32};
}

bool is_half(DType dtype) { return size_of(dtype) == 2 && dtype != DType::tf32; }
DType element_of(DType multiplied) { return is_half(multiplied) ? multiplied : DType::f32; }

/// Symbolic's handles of 16 bits, and tags of 16 bits, are so many; rounded down.
constexpr std::int64_t half_outputs = 23000, half_tags = 57000;

struct Extents {
  std::int64_t m, n;
};

/// Epilogue number `which` of 6, with 16-bit tensors where there are patterns enough for them.
void set_epilogue(GemmCase& c, std::size_t which) {
  const DType element = element_of(c.multiplied);
  const std::int64_t outputs = c.batch * c.m * c.n, tags = c.batch * (c.m * c.k + c.k * c.n) + outputs + c.n;
  const bool half_addend = is_half(element) && tags <= half_tags;
  const DType bias = tags - outputs <= half_tags ? element : DType::f32;
  which %= 6;
  const bool narrow = which != 1 && which != 3 && outputs <= half_outputs;
  c.out = narrow ? element : DType::f32;
  if (which == 2 || which == 5) c.bias = bias;
  if (which == 3 || which == 4) c.bias = DType::f32;
  if (which == 3 || which == 5) c.addend = DType::f32;
  if (which == 4) c.addend = narrow && half_addend ? element : DType::f32;
}

/// Rests of k by the elements of 16 bytes (run), of an instruction and of a slice of 64 bytes, of which four
/// are in flight.
std::vector<std::int64_t> depths(DType multiplied) {
  const std::int64_t run = is_half(multiplied) ? 8 : 4, step = 2 * run, slice = 4 * run;
  return {0,
          1,
          run - 1,
          run,
          run + 1,
          step - 1,
          step,
          step + 1,
          slice - 1,
          slice,
          slice + 1,
          slice + step + 1,
          3 * slice,
          4 * slice,
          4 * slice + run,
          5 * slice + run + 1};
}

}  // namespace

std::vector<GemmCase> gemm_cases(int architecture, bool whole) {
  // One tile, several, and rests in both directions, rows aligned and not: small ones (64 x 64), medium ones
  // (128 x 128) and large ones (128 x 256).
  const std::vector<std::vector<Extents>> sizes = {
      {{64, 64}, {33, 63}, {16, 8}, {1, 1}, {72, 24}, {20, 150}},
      {{128, 128}, {65, 70}, {127, 101}, {80, 120}, {200, 100}},
      {{72, 200}, {65, 129}, {100, 233}, {128, 256}, {70, 400}, {250, 200}},
  };
  std::vector<GemmCase> cases;
  std::size_t number = 0;
  const auto add = [&](DType multiplied, bool transpose_a, bool transpose_b, const Extents& extents,
                       std::int64_t k, std::int64_t batch = 1) {
    GemmCase c{.multiplied = multiplied,
               .transpose_a = transpose_a,
               .transpose_b = transpose_b,
               .m = extents.m,
               .n = extents.n,
               .k = k,
               .batch = batch};
    if (is_half(multiplied) && batch * k * (c.m + c.n) > half_tags) return false;
    set_epilogue(c, number++);
    cases.push_back(c);
    return true;
  };
  for (const DType multiplied : multiplied_by(architecture))
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const std::vector<std::int64_t> ks = depths(multiplied);
        const auto any = [&](const Extents& extents, std::int64_t k, std::int64_t batch = 1) {
          return add(multiplied, transpose_a, transpose_b, extents, k, batch);
        };
        if (!whole) {
          any({64, 64}, ks[14]);  // aligned rows, whatever the transposes are
          any({33, 63}, ks[15]);
          any({65, 70}, ks[15]);
          if (is_half(multiplied)) any({65, 129}, ks[15]);
          continue;
        }
        for (const std::vector<Extents>& of_size : sizes)
          for (std::size_t i = 0; i < ks.size(); ++i)
            for (std::size_t take = 0, tried = 0; take < 2 && tried < of_size.size(); ++tried)
              take += any(of_size[(2 * i + tried) % of_size.size()], ks[i]) ? 1 : 0;
        for (const std::int64_t k : ks)  // rows of A and B begin at multiples of 16 bytes
          any({64, 40}, (k + 7) / 8 * 8);
        any({600, 40}, ks[10]);  // more rows of tiles than share their columns
        any({40, 72}, ks[11], 3);
        any({70, 66}, ks[4], 2);
      }
  return cases;
}

std::vector<ConvolutionCase> convolution_cases(int architecture, bool whole) {
  struct Geometry {
    std::int64_t images, inputs, height, width, outputs;
    std::array<std::int64_t, 2> taps{1, 1}, stride{1, 1}, padding{0, 0}, dilation{1, 1};
    std::int64_t groups = 1;
  };
  using enum ConvolutionVerb;
  std::vector<ConvolutionCase> cases;
  std::size_t number = 0;
  const auto add = [&](const Geometry& g, std::initializer_list<ConvolutionVerb> verbs) {
    for (const DType multiplied : multiplied_by(architecture))
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        for (const ConvolutionVerb verb : verbs) {
          ConvolutionCase c{.verb = verb,
                            .multiplied = multiplied,
                            .images = g.images,
                            .inputs = g.inputs,
                            .height = g.height,
                            .width = g.width,
                            .outputs = g.outputs,
                            .taps = g.taps,
                            .geometry = {.stride = g.stride,
                                         .padding = g.padding,
                                         .dilation = g.dilation,
                                         .layout = layout,
                                         .groups = g.groups}};
          const DType element = element_of(multiplied);
          const std::size_t which = number++ % 3;
          if (which != 1) c.out = element;
          if (which != 0 && verb != weight_gradient) c.bias = which == 1 ? DType::f32 : element;
          cases.push_back(c);
        }
  };
  // Short: what has more than 64 and at most 64 rows, with all three verbs deeper than a pipeline somewhere.
  add({1, 17, 7, 9, 20, {3, 3}, {1, 1}, {1, 1}}, {forward, input_gradient});
  add({2, 17, 9, 9, 20, {3, 3}, {1, 1}, {1, 1}}, {weight_gradient});
  add({1, 160, 8, 10, 72}, {forward, input_gradient});
  add({5, 9, 8, 8, 70, {3, 3}, {1, 1}, {1, 1}}, {weight_gradient});
  if (!whole) return cases;

  add({2, 17, 9, 9, 20, {3, 3}, {1, 1}, {1, 1}}, {forward, input_gradient});
  add({2, 3, 8, 8, 70, {3, 3}, {1, 1}, {1, 1}}, {forward, input_gradient, weight_gradient});
  add({2, 70, 8, 8, 5, {3, 3}, {1, 1}, {1, 1}}, {forward, input_gradient, weight_gradient});
  add({1, 9, 9, 9, 70, {3, 3}, {2, 2}, {1, 1}}, {forward, input_gradient, weight_gradient});
  add({2, 6, 11, 9, 10, {3, 2}, {2, 1}, {1, 0}, {2, 1}, 2}, {forward, input_gradient, weight_gradient});
  add({2, 16, 8, 8, 24}, {forward, input_gradient, weight_gradient});
  add({3, 7, 5, 5, 9}, {forward, input_gradient, weight_gradient});
  add({2, 8, 7, 7, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 8}, {forward, input_gradient, weight_gradient});
  add({2, 16, 6, 8, 16, {2, 2}, {2, 2}}, {forward, input_gradient, weight_gradient});
  add({1, 1, 3, 40, 3, {1, 33}, {1, 1}, {0, 16}}, {forward, input_gradient, weight_gradient});
  add({2, 144, 6, 12, 144, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 2}, {forward, input_gradient, weight_gradient});
  for (const std::int64_t depth : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65, 128, 129, 137, 169}) {
    add({1, depth, 4, 6, 5}, {forward});
    add({2, depth, 8, 8, 66}, {forward});
    add({1, 5, 4, 6, depth}, {input_gradient});
    add({2, 66, 8, 8, depth}, {input_gradient});
    add({1, 5, 1, depth, 6}, {weight_gradient});
    add({1, 66, 1, depth, 66}, {weight_gradient});
  }
  add({0, 5, 4, 4, 6, {3, 3}}, {weight_gradient});
  add({0, 66, 4, 4, 66}, {weight_gradient});
  return cases;
}

std::vector<LibraryEpilogueCase> library_epilogue_cases(int architecture, bool whole) {
  std::vector<LibraryEpilogueCase> cases;
  for (const DType operands : {DType::f16, DType::bf16, DType::f32}) {
    if (operands == DType::bf16 && architecture < 80) continue;
    for (const Extents& extents : whole
                                      ? std::vector<Extents>{{40, 24}, {33, 13}, {1, 1}, {7, 200}, {130, 63}}
                                      : std::vector<Extents>{{40, 24}, {33, 13}})
      for (std::size_t which = 0; which < 6; ++which) {
        GemmCase like{.multiplied = operands, .m = extents.m, .n = extents.n, .k = 0};
        set_epilogue(like, which);
        cases.push_back({.operands = operands,
                         .m = extents.m,
                         .n = extents.n,
                         .batch = 1 + static_cast<std::int64_t>(which) % 2,
                         .out = like.out,
                         .bias = like.bias,
                         .addend = like.addend});
      }
  }
  return cases;
}

}  // namespace fp16lab::engine::ptx::test
