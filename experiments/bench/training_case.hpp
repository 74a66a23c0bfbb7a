// Training runs for benchmarks: a network, one batch that stays in memory, and a learning rate of zero, so
// that every step does the same work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/train/trainer.hpp"

namespace fp16lab::bench {

struct TrainingSetup {
  engine::AmpOptions amp = {};  ///< with a loss scale of 1024 where the level is not O0
  std::string label = "O0";     ///< of the line about peak memory
  bool histograms = false;      ///< of every gradient in every step
  int threads = 1;
};

class TrainingCase {
 public:
  virtual ~TrainingCase() = default;
  virtual void step() = 0;
};

/// Linear layers with ReLU and cross-entropy, SGD with momentum.
std::shared_ptr<TrainingCase> make_perceptron(const TrainingSetup& setup, std::int64_t batch,
                                              const std::vector<std::int64_t>& widths);
std::shared_ptr<TrainingCase> make_perceptron(const TrainingSetup& setup);
/// The shipped lenet5, 32 images of 32x32, SGD with momentum.
std::shared_ptr<TrainingCase> make_lenet5(const TrainingSetup& setup);

/// The shipped charlm_lstm and charlm_transformer, one batch of random symbols, Adam.
std::shared_ptr<TrainingCase> make_lstm(const TrainingSetup& setup);
std::shared_ptr<TrainingCase> make_gpt(const TrainingSetup& setup);
/// The same GPT over 12,000 words.
std::shared_ptr<TrainingCase> make_word_gpt(const TrainingSetup& setup);

/// Peak memory of the tensors of every case so far, and of the process: one line each.
std::string memory_summary();

}  // namespace fp16lab::bench
