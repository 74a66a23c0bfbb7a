// Kernels of a few instructions, written by hand, and what they leave in memory.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/machines/ptx/machine.hpp"

namespace fp16lab::engine::ptx {

/// Around `body`: registers %p %h %r %d %f %e (predicates, 16, 32 and 64 bits, FP32, FP64), of which %r0 is
/// the thread, %d0 the thread's 8 bytes of the output, and %d1 the input. `declarations` come before the
/// kernel, `variables` in it.
struct SmallKernel {
  std::string body = {};
  std::string variables = {};
  std::string declarations = {};
  std::uint32_t threads = 32, blocks = 1;
  std::size_t dynamic_shared_bytes = 0;
  std::vector<std::uint8_t> input = std::vector<std::uint8_t>(256, 0);
  Machine::Options options = {};

  std::string text() const {
    return fmt::format(
        ".version 9.0\n.target sm_90\n.address_size 64\n{}\n.visible .entry small(.param .u64 small_0, "
        ".param .u64 small_1)\n"
        "{{\n.reg .pred %p<16>;\n.reg .b16 %h<32>;\n.reg .b32 %r<64>;\n.reg .b64 %d<32>;\n.reg .f32 %f<32>;\n"
        ".reg .f64 %e<16>;\n{}\nld.param.u64 %d0, [small_0];\nld.param.u64 %d1, [small_1];\nmov.u32 %r0, "
        "%tid.x;\n"
        "mov.u32 %r62, %ctaid.x;\nmov.u32 %r63, %ntid.x;\nmad.lo.s32 %r62, %r62, %r63, %r0;\nmul.wide.u32 "
        "%d2, %r62, 8;\n"
        "add.s64 %d0, %d0, %d2;\n{}\nret;\n}}\n",
        declarations, variables, body);
  }

  /// 8 bytes of each thread; a5 where it wrote nothing.
  std::vector<std::uint64_t> run() {
    DeviceMemory memory;
    Program program(memory);
    program.add("small.ptx", text());
    std::byte* const out = memory.allocate(std::size_t{8} * threads * blocks, "output");
    std::byte* const in = memory.allocate(input.size(), "input");
    std::memcpy(in, input.data(), input.size());
    Machine machine(memory, options);
    const void* const parameters[] = {&out, &in};
    Grid grid;
    grid.x = blocks;
    grid.block_x = threads;
    grid.dynamic_shared_bytes = dynamic_shared_bytes;
    machine.launch(*program.find("small"), grid, parameters);
    std::vector<std::uint64_t> results(std::size_t{threads} * blocks);
    std::memcpy(results.data(), out, 8 * results.size());
    std::memcpy(input.data(), in, input.size());
    return results;
  }

  /// The message of the fault; empty if there is none.
  std::string fault() {
    try {
      run();
    } catch (const Fault& caught) {
      kind_of_fault = caught.kind();
      return caught.what();
    }
    kind_of_fault = {};
    return {};
  }
  /// The kind of the last fault.
  std::optional<FaultKind> kind_of_fault = {};
};

/// What the instructions leave in %r1.
inline std::uint32_t word_of(const std::string& body) {
  SmallKernel kernel{.body = body + " st.global.u32 [%d0], %r1;"};
  return static_cast<std::uint32_t>(kernel.run()[0]);
}
/// In %f1, %d3, %e1 and %h1.
inline std::uint32_t float_of(const std::string& body) { return word_of(body + " mov.b32 %r1, %f1;"); }
inline std::uint64_t long_of(const std::string& body) {
  SmallKernel kernel{.body = body + " st.global.u64 [%d0], %d3;"};
  return kernel.run()[0];
}
inline std::uint64_t double_of(const std::string& body) { return long_of(body + " mov.b64 %d3, %e1;"); }
inline std::uint32_t half_of(const std::string& body) { return word_of(body + " cvt.u32.u16 %r1, %h1;"); }
/// %p1 as 0 or 1.
inline std::uint32_t predicate_of(const std::string& body) {
  return word_of(body + " selp.u32 %r1, 1, 0, %p1;");
}

}  // namespace fp16lab::engine::ptx
