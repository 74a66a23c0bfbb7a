#include "engine/amp/levels/op_statistics.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <type_traits>
#include <utility>

#include "numerics/files/run/record_csv.hpp"

namespace fp16lab::engine::amp {

namespace {

constexpr std::int64_t first_channels = 4;  ///< channels of the network's input

/// Calls `visit` with each member of OpCount that counts, in the order of the file.
template <class Visit>
void for_each_count(const Visit& visit) {
  for_each_field<OpCount>([&](const auto& field) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field.member)>, std::uint64_t OpCount::*>)
      visit(field.member);
  });
}

void add(OpCount& sum, const OpCount& count) {
  for_each_count([&](auto member) { sum.*member += count.*member; });
}

bool same_shape(const ProductShape& a, const ProductShape& b) {
  return a.m == b.m && a.n == b.n && a.k == b.k && a.input_channels == b.input_channels &&
         a.output_channels == b.output_channels && a.nchw == b.nchw;
}

/// Collects advice, once for each layer and text.
class Adviser {
 public:
  void say(const std::string& layer, std::string text) {
    const bool said = std::any_of(advice_.begin(), advice_.end(), [&](const Advice& known) {
      return known.layer == layer && known.text == text;
    });
    if (!said) advice_.push_back({layer, std::move(text)});
  }
  /// "N = 10": an extent that has to be a multiple of 8.
  void check(const std::string& layer, std::string_view what, std::int64_t extent, DType dtype) {
    const bool tf32 = dtype == DType::tf32;
    const std::int64_t multiple = tf32 ? tf32_multiple : channel_multiple;
    if (extent % multiple == 0) return;
    say(layer,
        fmt::format("{} = {} is not a multiple of {}, which {} products need to fill tensor cores{}: {} "
                    "would be right",
                    what, extent, multiple, title_of(dtype), tf32 ? "" : " (on an A100 the guides quote 16)",
                    (extent + multiple - 1) / multiple * multiple));
  }
  std::vector<Advice> take() { return std::move(advice_); }

 private:
  std::vector<Advice> advice_;
};

using Row = std::vector<std::string>;

Row row_of(std::string op, std::string layer, const OpCount& count) {
  Row row{std::move(op), std::move(layer)};
  for_each_count([&](auto member) { row.push_back(fmt::to_string(count.*member)); });
  return row;
}

}  // namespace

OpCount& OpStatistics::count_of(std::string_view layer, Op op) {
  const auto found = std::find_if(counts_.begin(), counts_.end(), [&](const OpCount& count) {
    return count.op == name_of(op) && count.layer == layer;
  });
  if (found != counts_.end()) return *found;
  return counts_.emplace_back(OpCount{.layer = std::string(layer), .op = std::string(name_of(op))});
}

void OpStatistics::on_op(std::string_view layer, Op op, DType dtype) {
  OpCount& count = count_of(layer, op);
  if (dtype == DType::f16) {
    ++count.f16;
  } else if (dtype == DType::bf16) {
    ++count.bf16;
  } else if (dtype == DType::tf32) {
    ++count.tf32;
  } else {
    ++count.f32;
  }
}

void OpStatistics::on_cast(std::string_view layer, Op op, DType to) {
  OpCount& count = count_of(layer, op);
  ++(to == DType::f32 ? count.casts_to_f32 : count.casts_to_low);
}

void OpStatistics::on_product(std::string_view layer, Op op, const ProductShape& shape, DType dtype) {
  const bool known = std::any_of(products_.begin(), products_.end(), [&](const Product& product) {
    return product.op == op && product.dtype == dtype && same_shape(product.shape, shape) &&
           product.layer == layer;
  });
  if (!known) products_.push_back({std::string(layer), op, shape, dtype});
}

std::vector<OpCount> OpStatistics::by_op() const {
  std::vector<OpCount> sums;
  for (const OpCount& count : counts_) {
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const OpCount& s) { return s.op == count.op; });
    if (sum == sums.end()) sum = sums.insert(sums.end(), OpCount{.layer = {}, .op = count.op});
    add(*sum, count);
  }
  return sums;
}

std::vector<Advice> OpStatistics::advice() const {
  Adviser adviser;
  const Product* first_convolution = nullptr;
  for (const Product& product : products_) {
    const ProductShape& shape = product.shape;
    const bool convolution = shape.input_channels > 0;
    if (convolution && first_convolution == nullptr) first_convolution = &product;
    if (product.dtype == DType::f32) continue;
    if (!convolution) {
      adviser.check(product.layer, "M", shape.m, product.dtype);
      adviser.check(product.layer, "N", shape.n, product.dtype);
      adviser.check(product.layer, "K", shape.k, product.dtype);
      continue;
    }
    const bool reads_input = first_convolution->layer == product.layer;
    if (reads_input && shape.input_channels < first_channels) {
      adviser.say(product.layer,
                  fmt::format("C = {} input channels of the first convolution: 4 would be right, "
                              "by padding with zeros",
                              shape.input_channels));
    } else if (!(reads_input && shape.input_channels == first_channels)) {
      adviser.check(product.layer, "C", shape.input_channels, product.dtype);
    }
    adviser.check(product.layer, "K", shape.output_channels, product.dtype);
    if (shape.nchw) {
      adviser.say(product.layer, fmt::format("{} convolution in NCHW, which has to be transposed for tensor "
                                             "cores: NHWC would be right",
                                             title_of(product.dtype)));
    }
  }
  return adviser.take();
}

void OpStatistics::clear() {
  counts_.clear();
  products_.clear();
}

std::string to_text(const OpStatistics& statistics) {
  std::vector<Row> rows = {
      {"op", "layer", "FP16", "BF16", "FP32", "casts to 16 bits", "casts to FP32", "TF32"}};
  const auto layer_name = [](const OpCount& count) { return count.layer.empty() ? "-" : count.layer; };
  OpCount total;
  for (const OpCount& sum : statistics.by_op()) {
    add(total, sum);
    std::vector<const OpCount*> layers;
    for (const OpCount& count : statistics.by_layer()) {
      if (count.op == sum.op) layers.push_back(&count);
    }
    if (layers.size() == 1) {
      rows.push_back(row_of(sum.op, layer_name(*layers.front()), sum));
      continue;
    }
    rows.push_back(row_of(sum.op, fmt::format("{} layers", layers.size()), sum));
    for (const OpCount* const layer : layers) rows.push_back(row_of("", layer_name(*layer), *layer));
  }
  rows.push_back(row_of("total", "", total));
  const std::size_t columns = rows.front().size() - (total.tf32 == 0 ? 1 : 0);

  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}", row[0], widths[0], row[1], widths[1]);
    for (std::size_t i = 2; i < columns; ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

std::string to_csv(const OpStatistics& statistics) { return csv_table(statistics.by_layer()); }

}  // namespace fp16lab::engine::amp
