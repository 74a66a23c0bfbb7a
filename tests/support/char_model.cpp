#include "tests/support/char_model.hpp"

#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace fp16lab::engine::test {

namespace {

constexpr double gpt2_deviation = 0.02;

void check_symbols(const char* model, const Shape& shape) {
  if (shape.rank() == 2 && shape[1] >= 1) return;
  throw std::invalid_argument(std::string(model) + ": x is " + shape.to_string() +
                              "; symbols (B, T >= 1) are needed");
}

/// (B, T, features) -> (B T, features)
Variable rows_of(const Variable& x) {
  const Shape shape = x.shape();
  return ops::reshape(x, {shape[0] * shape[1], shape[2]});
}

}  // namespace

CharLstm::CharLstm(Backend& backend, const CharLstmOptions& options)
    : embedding_(&add_child(std::make_unique<nn::Embedding>(
          backend, "embedding",
          nn::EmbeddingOptions{
              .symbols = options.symbols, .features = options.embedding, .seed = options.seed}))),
      dropout_in_(&add_child(std::make_unique<nn::Dropout>("dropout_in", options.dropout))),
      dropout_out_(&add_child(std::make_unique<nn::Dropout>("dropout_out", options.dropout))),
      lstm_(&add_child(std::make_unique<nn::Lstm>(backend, "lstm",
                                                  nn::LstmOptions{.inputs = options.embedding,
                                                                  .hidden = options.hidden,
                                                                  .layers = options.layers,
                                                                  .dropout = options.dropout,
                                                                  .seed = options.seed}))),
      head_(&add_child(std::make_unique<nn::Linear>(
          backend, "head",
          nn::LinearOptions{.inputs = options.hidden, .outputs = options.symbols, .seed = options.seed}))) {}

Variable CharLstm::forward(Tape& tape, const Variable& x) {
  check_symbols("CharLstm", x.shape());
  Variable y = dropout_in_->forward(tape, embedding_->forward(tape, x));
  y = dropout_out_->forward(tape, lstm_->forward(tape, y));
  return head_->forward(tape, rows_of(y));
}

class CharTransformer::Block final : public nn::Module {
 public:
  Block(Backend& backend, const std::string& path, const CharTransformerOptions& options)
      : residual_scope_(path + ".residual") {
    const std::int64_t features = options.embedding;
    const auto deviation = static_cast<float>(gpt2_deviation);
    // 2 * layers branches add up on the residual stream; GPT-2 keeps their sum's variance that of one.
    const auto residual_deviation =
        static_cast<float>(gpt2_deviation / std::sqrt(2.0 * static_cast<double>(options.layers)));
    norm1_ = &add_child(std::make_unique<nn::LayerNorm>(backend, path + ".ln1", features));
    attention_ = &add_child(
        std::make_unique<nn::SelfAttention>(backend, path + ".attn",
                                            nn::AttentionOptions{.features = features,
                                                                 .heads = options.heads,
                                                                 .dropout = options.dropout,
                                                                 .deviation = deviation,
                                                                 .output_deviation = residual_deviation,
                                                                 .seed = options.seed}));
    attention_dropout_ =
        &add_child(std::make_unique<nn::Dropout>(path + ".attn.residual_dropout", options.dropout));
    norm2_ = &add_child(std::make_unique<nn::LayerNorm>(backend, path + ".ln2", features));
    expand_ = &add_child(std::make_unique<nn::Linear>(
        backend, path + ".mlp.fc",
        nn::LinearOptions{
            .inputs = features, .outputs = 4 * features, .deviation = deviation, .seed = options.seed}));
    project_ = &add_child(std::make_unique<nn::Linear>(backend, path + ".mlp.proj",
                                                       nn::LinearOptions{.inputs = 4 * features,
                                                                         .outputs = features,
                                                                         .deviation = residual_deviation,
                                                                         .seed = options.seed}));
    mlp_dropout_ = &add_child(std::make_unique<nn::Dropout>(path + ".mlp.dropout", options.dropout));
  }

  /// x (B, T, E) -> (B, T, E)
  Variable forward(Tape& tape, const Variable& x) override {
    Variable stream;
    {
      const ScopeGuard scope(tape, residual_scope_);
      stream = ops::watch(x, SlotLabel::input);
    }
    const Variable attended = attention_->forward(tape, norm1_->forward(tape, stream));
    stream = ops::add(stream, attention_dropout_->forward(tape, attended));
    const Variable expanded =
        ops::gelu(expand_->forward(tape, norm2_->forward(tape, stream)), ops::GeluKind::tanh);
    return ops::add(stream, mlp_dropout_->forward(tape, project_->forward(tape, expanded)));
  }

 private:
  std::string residual_scope_;
  nn::LayerNorm *norm1_, *norm2_;
  nn::SelfAttention* attention_;
  nn::Linear *expand_, *project_;
  nn::Dropout *attention_dropout_, *mlp_dropout_;
};

CharTransformer::CharTransformer(Backend& backend, const CharTransformerOptions& options)
    : options_(options) {
  if (options.context < 1 || options.layers < 0) {
    throw std::invalid_argument("CharTransformer: context " + std::to_string(options.context) + ", " +
                                std::to_string(options.layers) + " layers; at least 1 and 0");
  }
  const auto deviation = static_cast<float>(gpt2_deviation);
  const auto table = [&](std::int64_t symbols) {
    return nn::EmbeddingOptions{
        .symbols = symbols, .features = options.embedding, .deviation = deviation, .seed = options.seed};
  };
  tokens_ = &add_child(std::make_unique<nn::Embedding>(backend, "tokens", table(options.symbols)));
  positions_ =
      &add_child(std::make_unique<nn::PositionEmbedding>(backend, "positions", table(options.context)));
  dropout_ = &add_child(std::make_unique<nn::Dropout>("dropout", options.dropout));
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    blocks_.push_back(&add_child(std::make_unique<Block>(backend, "h" + std::to_string(layer), options)));
  }
  final_norm_ = &add_child(std::make_unique<nn::LayerNorm>(backend, "ln_f", options.embedding));
  head_ = &add_child(std::make_unique<nn::Linear>(backend, "head",
                                                  nn::LinearOptions{.inputs = options.embedding,
                                                                    .outputs = options.symbols,
                                                                    .bias = false,
                                                                    .deviation = deviation,
                                                                    .seed = options.seed}));
}

Variable CharTransformer::forward(Tape& tape, const Variable& x) {
  check_symbols("CharTransformer", x.shape());
  const std::int64_t steps = x.shape()[1];
  if (steps > options_.context) {
    throw std::invalid_argument("CharTransformer: x is " + x.shape().to_string() +
                                ", longer than context = " + std::to_string(options_.context));
  }
  // (B, T, E) + (T, E)
  Variable stream = ops::add(tokens_->forward(tape, x), positions_->forward(tape, x));
  stream = dropout_->forward(tape, stream);
  for (Block* block : blocks_) stream = block->forward(tape, stream);
  return head_->forward(tape, rows_of(final_norm_->forward(tape, stream)));
}

}  // namespace fp16lab::engine::test
