// Keys backend.*, parallel.*, observe.*, checkpoint.* and report.*: on what a run computes, and what it
// writes.
#include "experiments/app/config/config_key_rows.hpp"
#include "experiments/app/registry.hpp"

namespace fp16lab::experiments::keys {

namespace {

Choices observed_tensors() {
  Choices names;
  for (const Observed observed : every<Observed>) names.emplace_back(name_of(observed));
  return names;
}

}  // namespace

std::vector<ConfigKey> of_backend() {
  return all_as(
      KeyRole::configuration,
      {
          FP16LAB_KEY(backend.device,
                      "auto: cuda where a device can run it, else emulated. V100 is emulated; this program "
                      "runs on 7.5 and newer",
                      named(every<Device>))
              .as(KeyRole::machine),
          FP16LAB_KEY(backend.tensor_core,
                      "tensor cores whose arithmetic FP16 products follow; auto: emulated hopper, or the "
                      "device's own",
                      auto_or(tensor_core_names())),
          FP16LAB_KEY(backend.accumulator,
                      "(emulated only) type in which tensor cores sum products of FP16; those of FP8 are "
                      "always summed in FP32",
                      Named<DType>{{"f32", DType::f32}, {"f16", DType::f16}})
              .read_by(anything_cast()),
          FP16LAB_KEY(backend.library,
                      "(emulated only) library whose order over K products of 16-bit and FP8 operands "
                      "follow; instruction: one chain. A product for which a library's plan has no rule "
                      "(fp16lab list plans) ends the run",
                      library_names())
              .read_by(anything_cast()),
          FP16LAB_KEY(
              backend.library_threads,
              "threads of the library, on which its order may depend; those of this program change no bit",
              ConfigRange{1, 65536})
              .read_with("backend.library", {"onednn"}),
          FP16LAB_KEY(
              backend.overflow,
              "(emulated only) what an FP16 result beyond 65504 becomes; saturate: 65504 with its sign (NaN: "
              "0), as on Ascend's Atlas training series, and its step counts as an overflow",
              Named<engine::FloatOverflow>{{"infinity", engine::FloatOverflow::infinity},
                                           {"saturate", engine::FloatOverflow::saturate}})
              .read_by(anything_cast()),
          FP16LAB_KEY(backend.ordinal,
                      "(cuda only) number of the device, as in fp16lab devices; with several ranks, that of "
                      "each host's first rank",
                      ConfigRange{0, 2147483647})
              .as(KeyRole::machine)
              .read_unless("backend.device", {"emulated"}),
          FP16LAB_KEY(backend.gemm,
                      "(cuda only) what multiplies matrices. mma, and auto: fp16lab's kernels, with the "
                      "emulated bits; cublas: cuBLAS, which adds in its own order, without the promise of "
                      "equal bits; cublas-any-order means the same",
                      named(every<Gemm>))
              .as(KeyRole::machine)
              .read_unless("backend.device", {"emulated"}),
      });
}

std::vector<ConfigKey> of_parallel() {
  namespace parallel = engine::parallel;
  return {
      FP16LAB_KEY(parallel.shards,
                  "equal parts of a batch whose gradients are computed separately and then added: the bits "
                  "depend on this number alone, on any number of ranks of mpirun up to it. A power of two",
                  ConfigRange{1, static_cast<double>(parallel::most_shards)}),
      FP16LAB_KEY(parallel.sync_batch_norm,
                  "BatchNorm uses the statistics of all shards together, not of each one")
          .read_unless("parallel.shards", {"1"}),
      FP16LAB_KEY_AS("parallel.wire", parallel.wire.wire,
                     "type to which gradients are rounded before they are added, and every partial sum",
                     named(parallel::wire_formats))
          .read_unless("parallel.shards", {"1"}),
      FP16LAB_KEY_AS(
          "parallel.predivide", parallel.wire.predivide,
          "what gradients are divided by before they are added: 1, the root of parallel.shards, or n, "
          "parallel.shards; the rest comes after the sum",
          named(every<parallel::Predivide>))
          .read_unless("parallel.shards", {"1"}),
      FP16LAB_KEY_AS("parallel.order", parallel.wire.order,
                     "in which gradients are added: a binary tree, or as NCCL does over as many ranks as "
                     "shards; mpi: MPI_Allreduce itself, whose bits may depend on the ranks",
                     named(every<parallel::SumOrder>))
          .read_unless("parallel.shards", {"1"}),
      FP16LAB_KEY(parallel.time_limit,
                  "seconds that a rank waits for messages from others; then it names them and the run ends",
                  ConfigRange{1, 1e6})
          .as(KeyRole::machine)
          .read_unless("parallel.shards", {"1"}),
  };
}

std::vector<ConfigKey> of_observe() {
  return all_as(
      KeyRole::watching,
      {
          FP16LAB_KEY(observe.histograms_every, "steps between histograms of observe.tensors; 0: none",
                      counts),
          FP16LAB_KEY(
              observe.tensors,
              "what is counted: gradients and activations before and after their casts, weights and their "
              "copies in 16 bits, updates against weights, moments and momenta. It changes no bits",
              observed_tensors())
              .read_unless("observe.histograms_every", {"0"}),
          FP16LAB_KEY(observe.names,
                      "patterns of the tensors that are counted, such as \"layer1.*\"; empty: all")
              .read_unless("observe.histograms_every", {"0"}),
          FP16LAB_KEY(
              observe.explain_overflow,
              "find the operation that made the first Inf or NaN of every step with an overflow (slower, "
              "same bits)"),
      });
}

std::vector<ConfigKey> of_checkpoint() {
  return all_as(KeyRole::watching,
                {
                    FP16LAB_KEY(checkpoint.every, "steps between checkpoints; 0: none", counts),
                    FP16LAB_KEY(checkpoint.keep,
                                "how many of the newest checkpoints stay in the run folder; 0: all", counts)
                        .read_unless("checkpoint.every", {"0"}),
                });
}

std::vector<ConfigKey> of_report() {
  return all_as(KeyRole::watching,
                {
                    FP16LAB_KEY_AS("report.margin.loss", report.margin_loss,
                                   "in percent: a final loss (or bits per character) that differs from "
                                   "FP32's by less counts as equal",
                                   in_fp64(positive)),
                    FP16LAB_KEY_AS("report.margin.accuracy", report.margin_accuracy,
                                   "the same for an accuracy, in points", in_fp64(positive)),
                });
}

}  // namespace fp16lab::experiments::keys
