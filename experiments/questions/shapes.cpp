// exp_shapes: what do the extents of a product or a convolution cost, and its layout?
//
// The tutorials and NVIDIA's guides say: make every extent a multiple of 8, pad three channels to four,
// prefer NHWC. Claims, each with its criterion fixed before anything is measured. Times are medians on the
// device's clock.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/app/progress.hpp"
#include "experiments/questions/device_side.hpp"
#include "experiments/questions/questions.hpp"
#include "experiments/study/study.hpp"

namespace fp16lab::experiments {
namespace {

using engine::Backend;
using engine::Layout;
using engine::Shape;
using engine::Tensor;

struct Measured {
  std::string group, what, by;
  double milliseconds = 0;
  double tera = 0;  ///< 10^12 useful operations a second: padding counts as none
};

struct Sizes {
  std::int64_t product, images, extent, image_extent, channels, filters;
  TimingPlan plan;
};
constexpr Sizes full{4096, 64, 56, 224, 64, 64, {.warm_up = 3, .repetitions = 9, .least_milliseconds = 20}};
constexpr Sizes tiny{32, 1, 6, 9, 8, 8, {.warm_up = 1, .repetitions = 1}};

constexpr const char* own = "own mma.sync";
constexpr const char* library = "cuBLAS, any order";

class Shapes {
 public:
  /// Measures.
  Shapes(const DeviceSide& side, const Sizes& sizes, std::function<void(const std::string&)> progress)
      : side_(&side), sizes_(sizes), progress_(std::move(progress)) {
    const std::pair<const char*, engine::GemmRoute> routes[] = {{own, engine::GemmRoute::mma},
                                                                {library, engine::GemmRoute::cublas}};
    for (const auto& [by, route] : routes) {
      const auto backend = side_->make({.gemm = route});
      products(*backend, by);
      if (route == engine::GemmRoute::mma) convolutions(*backend, by);
    }
  }
  bool rehearsal() const { return side_->rehearsal; }
  const std::vector<Measured>& all() const { return all_; }
  /// TFLOP/s; 0 where it was not measured.
  double tera(const std::string& group, const std::string& what, const std::string& by) const {
    for (const Measured& one : all_)
      if (one.group == group && one.what == what && one.by == by) return one.tera;
    return 0;
  }

 private:
  static Tensor random(Backend& backend, const Shape& shape, std::string_view name) {
    Tensor wide = backend.empty(shape, DType::f32), low = backend.empty(shape, DType::f16);
    backend.fill_normal(wide, {.seed = 1, .stream = stream_id(name)}, 0.0f, 1.0f);
    backend.cast(wide, low);
    return low;
  }

  void add(Backend& backend, const std::string& group, const std::string& what, const std::string& by,
           double multiply_adds, const std::function<void()>& work) {
    progress_(fmt::format("{} {} {}", by, group, what));
    const double milliseconds = time_of(backend, sizes_.plan, work).median;
    all_.push_back({group, what, by, milliseconds, 2 * multiply_adds / (milliseconds * 1e-3) * 1e-12});
  }

  void products(Backend& backend, const std::string& by) {
    const std::int64_t n = sizes_.product;
    struct Extents {
      const char* what;
      std::int64_t m, n, k;
    };
    for (const Extents& x : {Extents{"0 mod 16", n, n, n}, Extents{"0 mod 8", n - 8, n - 8, n - 8},
                             Extents{"odd", n - 1, n - 1, n - 1}, Extents{"m odd", n - 1, n, n},
                             Extents{"n odd", n, n - 1, n}, Extents{"k odd", n, n, n - 1}}) {
      const Tensor a = random(backend, {x.m, x.k}, "a"), b = random(backend, {x.n, x.k}, "b");
      Tensor out = backend.empty({x.m, x.n}, DType::f16);
      add(backend, "product", x.what, by,
          static_cast<double>(x.m) * static_cast<double>(x.n) * static_cast<double>(x.k),
          [&] { backend.gemm({.a = a, .b = b, .out = out, .transpose_b = true}); });
    }
  }

  void convolutions(Backend& backend, const std::string& by) {
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      const std::string name = layout == Layout::nchw ? "NCHW" : "NHWC";
      convolution(backend, by, name, sizes_.channels, sizes_.extent, 3, layout);
      for (const std::int64_t channels : {3, 4})
        convolution(backend, by, fmt::format("{}, C = {}", name, channels), channels, sizes_.image_extent, 7,
                    layout);
    }
  }

  void convolution(Backend& backend, const std::string& by, const std::string& what, std::int64_t channels,
                   std::int64_t extent, std::int64_t kernel, Layout layout) {
    const std::int64_t stride = kernel == 3 ? 1 : 2, padding = kernel / 2;
    const std::int64_t out_extent = (extent + 2 * padding - kernel) / stride + 1;
    const auto shape = [&](std::int64_t depth, std::int64_t size) {
      return layout == Layout::nchw ? Shape{sizes_.images, depth, size, size}
                                    : Shape{sizes_.images, size, size, depth};
    };
    const engine::Conv2dGeometry geometry{
        .stride = {stride, stride}, .padding = {padding, padding}, .dilation = {1, 1}, .layout = layout};
    const Tensor x = random(backend, shape(channels, extent), "x");
    const Tensor weight = random(backend, {sizes_.filters, channels, kernel, kernel}, "weight");
    Tensor y = random(backend, shape(sizes_.filters, out_extent), "y");
    Tensor dx = backend.empty(x.shape(), DType::f16), dw = backend.empty(weight.shape(), DType::f16);
    // The work that three channels need: a fourth one is padding.
    const double useful = static_cast<double>(y.element_count()) *
                          static_cast<double>((channels == 4 ? 3 : channels) * kernel * kernel);
    add(backend, "convolution forward", what, by, useful,
        [&] { backend.conv2d(x, weight, geometry, nullptr, y); });
    add(backend, "convolution dX", what, by, useful,
        [&] { backend.conv2d_input_gradient(y, weight, geometry, nullptr, dx); });
    add(backend, "convolution dW", what, by, useful,
        [&] { backend.conv2d_weight_gradient(x, y, geometry, dw); });
  }

  const DeviceSide* side_;
  Sizes sizes_;
  std::function<void(const std::string&)> progress_;
  std::vector<Measured> all_;
};

/// `better` over `worse` in TFLOP/s, both of one `group` by one `by`.
Question<Shapes> ratio_question(std::string claim, std::string group, std::string by, std::string better,
                                std::string worse, double least, std::optional<double> most = {}) {
  return {.claim = std::move(claim),
          .criterion = fmt::format("TFLOP/s at {} over TFLOP/s at {} is {}", better, worse,
                                   most ? fmt::format("from {:.3g} to {:.3g}", least, *most)
                                        : fmt::format("at least {:.3g}", least)),
          .judge = [=](const Shapes& shapes) -> Answer {
            const double fast = shapes.tera(group, better, by), slow = shapes.tera(group, worse, by);
            if (fast <= 0 || slow <= 0) return {};
            const double ratio = fast / slow;
            const bool holds = ratio >= least && (!most || ratio <= *most);
            return {shapes.rehearsal() ? Verdict::rehearsed : verdict_of(holds),
                    fmt::format("{:.4g} / {:.4g} = {:.3f}{}", fast, slow, ratio,
                                shapes.rehearsal() ? ", meaningless" : "")};
          }};
}

std::vector<Question<Shapes>> questions() {
  constexpr double clearly = 1.1;  // what a clock's swing does not explain
  std::vector<Question<Shapes>> all;
  for (const char* by : {own, library}) {
    all.push_back(ratio_question(fmt::format("{}: an odd extent is slower than a multiple of 8", by),
                                 "product", by, "0 mod 8", "odd", clearly));
    all.push_back(ratio_question(fmt::format("{}: multiples of 8 are as good as multiples of 16", by),
                                 "product", by, "0 mod 16", "0 mod 8", 1 / clearly, clearly));
  }
  for (const char* group : {"convolution forward", "convolution dX", "convolution dW"}) {
    all.push_back(ratio_question(fmt::format("{}: NHWC is faster than NCHW", group), group, own, "NHWC",
                                 "NCHW", clearly));
    all.push_back(ratio_question(
        fmt::format("{}: four channels, one of them padding, are faster than three (NHWC)", group), group,
        own, "NHWC, C = 4", "NHWC, C = 3", clearly));
  }
  return all;
}

Described describe(const DeviceSide& side, const Shapes& shapes) {
  std::string text = fmt::format("device: {}\n{}\n", side.description,
                                 side.rehearsal ? "times are meaningless: rehearsal\n" : "");
  std::string csv = "machine,group,what,by,milliseconds,tflops\n";
  text += fmt::format("{:<20} {:<14} {:<20} {:>10} {:>10}\n", "group", "what", "by", "ms", "TFLOP/s");
  for (const Measured& one : shapes.all()) {
    text += fmt::format("{:<20} {:<14} {:<20} {:>10.4f} {:>10.2f}\n", one.group, one.what, one.by,
                        one.milliseconds, one.tera);
    csv += fmt::format("{},{},\"{}\",\"{}\",{},{}\n", side.rehearsal ? "rehearsal" : "gpu", one.group,
                       one.what, one.by, one.milliseconds, one.tera);
  }
  return {text, {{"exp_shapes.csv", csv}}};
}

}  // namespace

Command::Run ask_shapes(Options& options) {
  auto rehearse = std::make_shared<bool>(false);
  options.flag("--rehearse", *rehearse,
               "Use tiny sizes on the PTX machine (build/tests/on_ptx; tests this command)");
  return [rehearse](const CommonOptions& common) {
    const DeviceSide side = *rehearse ? open_rehearsal() : open_gpu();
    announce_output(common);
    Progress progress(common.quiet);
    const auto measure = [&] {
      return Shapes(side, *rehearse ? tiny : full, [&](const std::string& what) {
        if (progress.due()) progress.show(fmt::format("{}{}: {}", line_mark(side), common.program, what));
      });
    };
    run_study<Shapes>(common, {.questions = questions(),
                               .measure = measure,
                               .describe = [&](const Shapes& shapes) { return describe(side, shapes); },
                               .mark = line_mark(side)});
    return ExitCode::ok;  // the claims are of guides, not ours
  };
}

}  // namespace fp16lab::experiments
