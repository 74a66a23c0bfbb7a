// A text of few symbols, for tests that train language models.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/data/batch_source.hpp"
#include "engine/data/text.hpp"

namespace fp16lab::engine::test {

/// Windows of 6 symbols of a text of 12 different ones, three at a time.
class TinyText final : public data::BatchSource {
 public:
  TinyText() {
    for (std::size_t i = 0; i < 96; ++i) symbols_.push_back(static_cast<std::int32_t>((i * i + i / 5) % 12));
    loader_ = std::make_unique<data::TextLoader>(
        symbols_, data::TextLoaderOptions{.batch_size = 3, .context = 6, .seed = 2});
  }
  std::uint64_t batches_per_epoch() const override { return 1; }
  std::int64_t rows_per_batch() const override { return loader_->rows_per_batch(); }
  data::Batch batch(Backend& backend, std::uint64_t index) override { return loader_->batch(backend, index); }

 private:
  std::vector<std::int32_t> symbols_;
  std::unique_ptr<data::TextLoader> loader_;
};

}  // namespace fp16lab::engine::test
