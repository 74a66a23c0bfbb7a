// LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020).
//
// Algorithm 2 with the identity for its phi: bias corrections, weight decay inside the direction, the step
// of each parameter multiplied by |w| / |direction| (1 where one of the two norms is 0). So does NVIDIA
// apex's FusedLAMB with use_nvlamb = true (without it, apex leaves parameters without decay alone) and
// max_grad_norm = 0: the norm of all gradients is train.clip_norm's.
//
// MindSpore's Lamb (mindspore/nn/optim/lamb.py where it is composed of ops; later lamb_impl.cu has the same
// two directions) steps along this direction too, and differs in the quotient: its lower norm is that of
// m' / sqrt(v' + epsilon) + wd * w, with epsilon under the root; it is cut to [0, 10], and is 1 where the
// gradient is 0. Ours does none of this.
#pragma once

#include <vector>

#include "engine/optim/optimizer.hpp"

namespace fp16lab::engine::optim {

/// State: "<parameter>.first_moment" and "<parameter>.second_moment", as Adam's.
class Lamb final : public Optimizer {
 public:
  Lamb(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
       std::uint64_t steps, int index);

 private:
  void update_parameter(std::size_t which, Parameter& parameter, const Tensor& step,
                        const WeightStore& store) override;

  LambOptions lamb_;
};

}  // namespace fp16lab::engine::optim
