// What a question does after every step of a run that it trains in this process.
#pragma once

#include <functional>

#include "engine/train/observer.hpp"
#include "experiments/app/process.hpp"

namespace fp16lab::experiments {

/// The run stops after Ctrl-C, where catch_interrupts() was called.
struct StepTap final : engine::Tap {
  std::function<void(const StepRow&)> after;
  void see(const engine::Event& event) override {
    if (const auto* const row = event.as<StepRow>()) after(*row);
  }
  bool wants(const engine::Site& site) override { return site.what == engine::What::stop && interrupted(); }
};

}  // namespace fp16lab::experiments
