// The interface from autograd to autocast. The dependency is inverted: engine/amp implements this.
#pragma once

#include <cstdint>
#include <span>

#include "engine/autograd/op.hpp"
#include "engine/autograd/variable.hpp"
#include "engine/backend/backend.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

/// Where an op is called: the module scope by its number on the tape (Tape::scope_path gives "encoder.fc1";
/// numbers stay valid over Tape::reset), so that policies match patterns once per scope and not once per
/// call.
struct OpSite {
  Op op = Op::leaf;
  std::uint32_t scope = 0;
};

/// A matrix product as it is computed: a convolution as its implicit GEMM, where k is that of one group and
/// all else counts all groups.
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t input_channels = 0, output_channels = 0;  ///< for convolutions, else 0
  bool nchw = false;                                     ///< for convolutions
};

/// What is kept of one operand in all its products of a step: what its blocks lost, and where its scale is of
/// earlier steps. The policy has it, for longer than the tape's nodes live.
struct OperandRecord {
  QuantizerLoss loss{};
  const AmaxHistory* history = nullptr;
};

/// How the operands of one product are rounded on their way into it (see GemmCall).
struct ProductOperands {
  OperandRounding a{}, b{};
  OperandRecord *a_record = nullptr, *b_record = nullptr;  ///< null: nothing is kept
};

/// The same of all products of a layer: y = x W^T, dX = g W and dW = g^T x, with g the gradient of y.
struct ProductFormats {
  ProductOperands forward{};  ///< x, W
  ProductOperands dx{};       ///< g, W
  ProductOperands dw{};       ///< g, x
  bool tf32 = false;          ///< FP32 operands: all of them
};

/// Set on a Tape for the forward pass; backward passes always run without one. Composite operations do not
/// query it inside: it decides on them as a whole.
class CastPolicy {
 public:
  virtual ~CastPolicy() = default;
  /// The dtype in which `op` computes, given the dtypes that occur among its floating inputs (f32, f16,
  /// bf16): each once, in the order of the first input that has it. May refuse:
  /// AutogradError::Kind::unsafe_under_autocast. Also the place where calls are counted.
  virtual DType compute_dtype(OpSite site, std::span<const DType> inputs) = 0;
  /// The dtype of the result of `op`, computed in `computed`. A dialect that wraps a cell in casts
  /// (MindSpore's O1 and O2) widens or narrows here. Every op that queries its compute dtype calls it.
  virtual DType result_dtype(OpSite, DType computed) { return computed; }
  /// `input` in `dtype`, as a differentiable Variable of the same tape. May reuse an earlier cast of a
  /// parameter.
  virtual Variable cast(const Variable& input, DType dtype) = 0;
  /// Is the bias of linear, conv2d and conv_transpose2d a part of the product (torch, MindSpore's cells), or
  /// an add with a decision of its own (Paddle, MindSpore's primitives)? Linear is matmul and add then.
  virtual bool fuses_bias() const { return true; }
  /// The formats of a product's operands: FP8 of 16-bit ones, TF32 of FP32 ones; with scales for blocks where
  /// it is `of_layer`, a linear one's.
  virtual ProductFormats product_formats(OpSite, bool /*of_layer*/) { return {}; }
  /// Called for an op that sets its own compute dtype (engine/autograd/custom_op.hpp), before its inputs are
  /// cast.
  virtual void on_custom_op(OpSite, DType) {}
  /// Called for every product, before it is computed.
  virtual void on_product(OpSite, const ProductShape&, DType) {}
};

}  // namespace fp16lab::engine
