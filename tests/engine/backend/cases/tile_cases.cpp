#include "tests/engine/backend/cases/tile_cases.hpp"

#include <fmt/format.h>

#include <optional>

namespace fp16lab::engine::cases {
namespace {

namespace tile = engine::tile;
using engine::CastProbe;
using engine::Layout;
using engine::Shape;
using engine::Tensor;
using tile::Outputs;
using tile::Size;

constexpr DType tile_formats[] = {DType::f16, DType::bf16, DType::f32};

/// A planner and the tiles that it chooses among.
struct Planner {
  tile::Plan (*plan)(const Outputs& outputs, const tile::Gpu& gpu);
  const tile::Shape* shapes;
  std::size_t sizes;
};
Planner planner_of_products(DType dtype) {
  if (dtype == DType::f32)
    return {[](const Outputs& outputs, const tile::Gpu& gpu) { return tile::plan_fma(outputs, gpu); },
            tile::fma_shapes.data(), tile::fma_shapes.size()};
  return {[](const Outputs& outputs, const tile::Gpu& gpu) { return tile::plan_mma(outputs, gpu); },
          tile::mma_shapes.data(), tile::mma_shapes.size()};
}
Planner planner_of_convolutions(DType dtype) {
  if (dtype == DType::f32) return planner_of_products(dtype);
  return {&tile::plan_gathered, tile::gather_shapes.data(), tile::gather_shapes.size()};
}

/// The outputs of least m^2 + n^2 (so that tiles go round along both axes) that take tiles of `size`, at
/// least two of them along each axis, the last ones not full; extents are multiples of the steps. nullopt
/// where the planner chooses that size for none.
std::optional<Outputs> least_outputs(const Planner& planner, Size size, const tile::Gpu& gpu,
                                     std::int64_t step_m, std::int64_t step_n) {
  const tile::Shape& shape = planner.shapes[static_cast<std::size_t>(size)];
  const auto below = [](std::int64_t extent, std::int64_t step) { return (extent - 8) / step * step; };
  const std::int64_t most_tiles = std::int64_t{4} * gpu.multiprocessors + 16;
  std::optional<Outputs> least;
  for (std::int64_t tiles_m = 2; tiles_m * 2 <= most_tiles; ++tiles_m)
    for (std::int64_t tiles_n = 2; tiles_m * tiles_n <= most_tiles; ++tiles_n) {
      const Outputs outputs{.m = below(tiles_m * shape.m, step_m), .n = below(tiles_n * shape.n, step_n)};
      const auto squares = [](const Outputs& x) { return x.m * x.m + x.n * x.n; };
      const bool less = !least || squares(outputs) < squares(*least);
      if (less && planner.plan(outputs, gpu).size == size) least = outputs;
    }
  return least;
}

/// Places of two images, four rows high.
void set_places(TiledConvolution& convolution, std::int64_t places) { convolution.width = places / 8; }

/// Are places the rows of the convolution's product? engine/backend/cuda/product/convolution.cu has what are
/// rows and columns there.
bool channels_innermost(const TiledConvolution& one) {
  return one.layout == Layout::nhwc && (one.pass == ConvolutionPass::forward || one.kernel == 1);
}

/// The convolution of the pass and layout whose product has these outputs.
TiledConvolution with_outputs(TiledConvolution one, const Outputs& outputs) {
  if (one.pass == ConvolutionPass::weight_gradient) {
    one.filters = outputs.m;
    one.channels = outputs.n / (one.kernel * one.kernel);
    return one;
  }
  const bool places_first = channels_innermost(one);
  (one.pass == ConvolutionPass::forward ? one.filters : one.channels) = places_first ? outputs.n : outputs.m;
  set_places(one, places_first ? outputs.m : outputs.n);
  return one;
}

/// The other way round.
Outputs outputs_of(const TiledConvolution& one) {
  if (one.pass == ConvolutionPass::weight_gradient)
    return {one.filters, one.channels * one.kernel * one.kernel, 1};
  const std::int64_t places = one.images * one.height * one.width,
                     written = one.pass == ConvolutionPass::forward ? one.filters : one.channels;
  return channels_innermost(one) ? Outputs{places, written, 1} : Outputs{written, places, 1};
}

std::string tiles_text(const Planner& planner, Size size) {
  const tile::Shape& shape = planner.shapes[static_cast<std::size_t>(size)];
  return fmt::format("{}x{} tiles", shape.m, shape.n);
}

/// All bits of the accumulators; and rounded, with counts of what was rounded.
template <class Body>
void for_each_output_type(DType dtype, const Body& body) {
  body(DType::f32, Data::wide, nullptr);
  if (dtype == DType::f32) return;
  CastProbe probe;
  body(dtype, Data::training, &probe);
}

void run_product(CaseContext& c, const TiledProduct& one, std::int64_t k, bool transpose_a,
                 bool transpose_b) {
  for_each_output_type(one.dtype, [&](DType out_type, Data data, CastProbe* probe) {
    const Tensor a = c.random(transpose_a ? Shape{k, one.m} : Shape{one.m, k}, one.dtype, data);
    const Tensor b = c.random(transpose_b ? Shape{one.n, k} : Shape{k, one.n}, one.dtype, data);
    Tensor out = c.output({one.m, one.n}, out_type);
    c.backend().gemm(
        {.a = a, .b = b, .out = out, .transpose_a = transpose_a, .transpose_b = transpose_b, .probe = probe});
    c.keep(fmt::format("-> {}", name_of(out_type)), out);
    if (probe != nullptr) c.keep("counts", *probe);
  });
}

void run_convolution(CaseContext& c, const TiledConvolution& one) {
  const std::int64_t padding = one.kernel / 2;
  const engine::Conv2dGeometry geometry{.padding = {padding, padding}, .layout = one.layout};
  const auto images_of = [&](std::int64_t depth) {
    return one.layout == Layout::nchw ? Shape{one.images, depth, one.height, one.width}
                                      : Shape{one.images, one.height, one.width, depth};
  };
  const Shape x_shape = images_of(one.channels), y_shape = images_of(one.filters),
              weight_shape{one.filters, one.channels, one.kernel, one.kernel};
  for_each_output_type(one.dtype, [&](DType out_type, Data data, CastProbe* probe) {
    const bool reads_x = one.pass != ConvolutionPass::input_gradient;
    const Tensor first = c.random(reads_x ? x_shape : y_shape, one.dtype, data);
    const Tensor second =
        c.random(one.pass == ConvolutionPass::weight_gradient ? y_shape : weight_shape, one.dtype, data);
    Tensor out = c.output(one.pass == ConvolutionPass::forward          ? y_shape
                          : one.pass == ConvolutionPass::input_gradient ? x_shape
                                                                        : weight_shape,
                          out_type);
    if (one.pass == ConvolutionPass::forward)
      c.backend().conv2d(first, second, geometry, nullptr, out, probe);
    else if (one.pass == ConvolutionPass::input_gradient)
      c.backend().conv2d_input_gradient(first, second, geometry, nullptr, out, probe);
    else
      c.backend().conv2d_weight_gradient(first, second, geometry, out, probe);
    c.keep(fmt::format("-> {}", name_of(out_type)), out);
    if (probe != nullptr) c.keep("counts", *probe);
  });
}

const char* verb_of(ConvolutionPass pass) {
  return pass == ConvolutionPass::forward          ? "conv2d"
         : pass == ConvolutionPass::input_gradient ? "conv2d_input_gradient"
                                                   : "conv2d_weight_gradient";
}

}  // namespace

std::vector<TiledProduct> tiled_products(const tile::Gpu& gpu) {
  std::vector<TiledProduct> all;
  for (const DType dtype : tile_formats) {
    const Planner planner = planner_of_products(dtype);
    for (std::size_t i = 0; i < planner.sizes; ++i) {
      const auto size = static_cast<Size>(i);
      // 16-byte copies need multiples of 8: other rows move to such first, or take the small tile.
      if (const std::optional<Outputs> outputs = least_outputs(planner, size, gpu, 8, 8))
        all.push_back({dtype, size, outputs->m, outputs->n});
    }
  }
  return all;
}

std::vector<TiledConvolution> tiled_convolutions(const tile::Gpu& gpu) {
  using enum ConvolutionPass;
  const TiledConvolution kinds[] = {{.pass = forward, .layout = Layout::nchw},
                                    {.pass = forward, .layout = Layout::nhwc},
                                    {.pass = input_gradient, .layout = Layout::nchw},
                                    {.pass = input_gradient, .layout = Layout::nhwc},
                                    {.pass = input_gradient, .layout = Layout::nhwc, .kernel = 1},
                                    {.pass = weight_gradient, .layout = Layout::nchw},
                                    {.pass = weight_gradient, .layout = Layout::nhwc}};
  std::vector<TiledConvolution> all;
  for (const DType dtype : tile_formats) {
    const Planner planner = planner_of_convolutions(dtype);
    for (std::size_t i = 0; i < planner.sizes; ++i)
      for (TiledConvolution one : kinds) {
        one.dtype = dtype;
        one.size = static_cast<Size>(i);
        const std::int64_t step_n = one.pass == weight_gradient ? 8 * one.kernel * one.kernel : 8;
        if (const auto outputs = least_outputs(planner, one.size, gpu, 8, step_n))
          all.push_back(with_outputs(one, *outputs));
      }
  }
  return all;
}

VerbCase product_case(const std::string& what, const TiledProduct& one, std::int64_t k, bool transpose_a,
                      bool transpose_b, const tile::Gpu& gpu) {
  const Planner planner = planner_of_products(one.dtype);
  return {fmt::format("{} {}, {}", what, name_of(one.dtype),
                      tiles_text(planner, planner.plan({one.m, one.n, 1}, gpu).size)),
          fmt::format("{}x{}x{} {}{}", one.m, one.n, k, transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N'),
          [=](CaseContext& c) { run_product(c, one, k, transpose_a, transpose_b); }, one.dtype};
}

VerbCase convolution_case(const std::string& what, const TiledConvolution& one, const tile::Gpu& gpu) {
  const Planner planner = planner_of_convolutions(one.dtype);
  return {fmt::format("{} {}, {}", what, name_of(one.dtype),
                      tiles_text(planner, planner.plan(outputs_of(one), gpu).size)),
          fmt::format("{} {}x{}, {} images of {}x{}, {} to {} channels",
                      one.layout == Layout::nchw ? "nchw" : "nhwc", one.kernel, one.kernel, one.images,
                      one.height, one.width, one.channels, one.filters),
          [=](CaseContext& c) { run_convolution(c, one); }, one.dtype};
}

std::vector<VerbCase> tile_cases(const tile::Gpu& gpu, const std::vector<std::int64_t>& product_depths) {
  std::vector<VerbCase> cases;
  for (const TiledProduct& one : tiled_products(gpu))
    for (const std::int64_t k : product_depths)
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true})
          cases.push_back(product_case("gemm", one, k, transpose_a, transpose_b, gpu));
  for (const TiledConvolution& one : tiled_convolutions(gpu))
    cases.push_back(convolution_case(verb_of(one.pass), one, gpu));
  return cases;
}

}  // namespace fp16lab::engine::cases
