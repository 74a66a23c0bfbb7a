// finish_products on tags.
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "engine/backend/cuda/product/epilogue_parameters.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"
#include "tests/engine/backend/cuda/ptx/proof/product_cases.hpp"
#include "tests/engine/backend/cuda/ptx/proof/product_contract.hpp"
#include "tests/machines/ptx/machine.hpp"

namespace fp16lab::engine::ptx::test {

namespace {

constexpr std::uint32_t threads = 256;

std::string kernel_for(const Program& program, DType operands) {
  const std::string wanted =
      fmt::format("finish_products<{}>", operands == DType::f32 ? "float" : std::string(name_of(operands)));
  for (const std::string& name : program.names())
    if (makes_products(name) && short_name(name) == wanted) return name;
  throw std::invalid_argument("no text has the kernel " + wanted);
}

gpu::EpilogueTensor on_device(DeviceMemory& memory, const Tagged* tags) {
  if (tags == nullptr) return {};
  const std::vector<std::byte> bytes = tags->bytes();
  std::byte* const address = memory.allocate(bytes.size(), tags->name);
  std::memcpy(address, bytes.data(), bytes.size());
  return {.data = address, .f32 = tags->dtype == DType::f32};
}

}  // namespace

std::string LibraryEpilogueCase::text() const {
  return fmt::format("epilogue of a library's {} products, {} of {} x {} -> {}{}{}", name_of(operands), batch,
                     m, n, name_of(out), bias ? fmt::format(", bias {}", name_of(*bias)) : "",
                     addend ? fmt::format(", addend {}", name_of(*addend)) : "");
}

Proof prove(int architecture, const Texts& texts, const LibraryEpilogueCase& c) {
  DeviceMemory memory;
  Program program(memory);
  for (const auto& [file, text] : texts)
    if (text.find("15finish_products") != text.npos) program.add(file, text);
  Symbolic terms;
  Machine machine(memory, {.terms = &terms});
  Tags tags;
  const Shape shape{c.batch, c.m, c.n};
  const Tagged& accumulators = tags.make("accumulator", shape, DType::f32);
  const Tagged* const bias = c.bias ? &tags.make("bias", {c.n}, *c.bias) : nullptr;
  const Tagged* const addend = c.addend ? &tags.make("addend", shape, *c.addend) : nullptr;

  // An FP32 output is where its accumulators are.
  const gpu::EpilogueTensor from = on_device(memory, &accumulators);
  const auto count = static_cast<std::size_t>(shape.element_count());
  std::byte* const out = c.out == DType::f32 ? static_cast<std::byte*>(from.data)
                                             : memory.allocate(count * size_of(c.out), "out");
  gpu::Epilogue<gpu::RowMajorPlacement> epilogue{
      .placement = {.row_stride = c.n,
                    .batch_stride = c.m * c.n,
                    .n_extent = static_cast<std::int32_t>(c.n),
                    .aligned = c.n % 8 == 0},
      .m_extent = static_cast<std::int32_t>(c.m),
      .n_extent = static_cast<std::int32_t>(c.n),
      .out = {.data = out, .f32 = c.out == DType::f32},
      .bias = on_device(memory, bias),
      .bias_axis = bias != nullptr ? gpu::BiasAxis::per_column : gpu::BiasAxis::none,
      .addend = on_device(memory, addend)};
  const std::int64_t eights = (c.n + 7) / 8, total = c.batch * c.m * eights;
  const functions::Divisor by_eights(eights), by_rows(c.m);
  const void* const parameters[] = {&from.data, &epilogue, &by_eights, &by_rows, &total};

  Proof proof;
  const std::string kernel = kernel_for(program, c.operands);
  proof.kernels.push_back(kernel);
  try {
    machine.launch(*program.find(kernel),
                   {.x = static_cast<std::uint32_t>((total + threads - 1) / threads), .block_x = threads},
                   parameters);
  } catch (const std::exception& fault) {
    proof.difference = c.text() + ": " + fault.what();
    return proof;
  }
  const OutputJudge judge(terms, tags, chain_rule(architecture, DType::f32), c.out);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t pattern = 0;
    std::memcpy(&pattern, out + i * size_of(c.out), size_of(c.out));
    ExpectedOutput expected{.begin = accumulators.patterns[i], .products = {}, .addends = {}};
    if (bias != nullptr)
      expected.addends.push_back({bias->patterns[i % static_cast<std::size_t>(c.n)], bias->dtype});
    if (addend != nullptr) expected.addends.push_back({addend->patterns[i], addend->dtype});
    const std::string difference = judge.difference(pattern, expected);
    if (difference.empty()) continue;
    proof.difference =
        fmt::format("{}: kernel {}: output {}: {}", c.text(), short_name(kernel), i, difference);
    return proof;
  }
  proof.outputs = shape.element_count();
  return proof;
}

}  // namespace fp16lab::engine::ptx::test
