// Bounds, alignment, races, atomics, local memory, and copies that arrive late.
#include "tests/engine/backend/cuda/ptx/small_kernel.hpp"

namespace fp16lab::engine::ptx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PtxMemory, LoadsExtendAndStoresCut) {
  SmallKernel kernel{.body =
                         "ld.global.s8 %r1, [%d1+3]; ld.global.u8 %r2, [%d1+3]; ld.global.s16 %r3, [%d1+2];"
                         "add.s32 %r1, %r1, %r2; add.s32 %r1, %r1, %r3; st.global.u32 [%d0], %r1; "
                         "st.global.u16 [%d0+4], %r2;"};
  kernel.input[2] = 1;
  kernel.input[3] = 0x80;
  const std::uint64_t slot = kernel.run()[0];
  EXPECT_EQ(static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(-128 + 128 - 0x7fff));
  EXPECT_EQ(slot >> 32, 0xa5a50080u);
}

TEST(PtxMemory, VectorsAndPairsKeepTheirOrder) {
  SmallKernel kernel{
      .body = "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1+16]; st.global.v2.u32 [%d0], {%r4, %r1};"};
  for (std::size_t i = 0; i < 32; ++i) kernel.input[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(kernel.run()[0], 0x131211101f1e1d1cu);
}

TEST(PtxMemory, MisalignedAccessesAreFaults) {
  for (const char* access :
       {"ld.global.u32 %r1, [%d1+2];", "ld.global.v2.u32 {%r1, %r2}, [%d1+4];",
        "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1+8];", "st.global.u16 [%d0+1], %h1;",
        "ld.shared.u64 %d3, [cells+4];", "ld.u32 %r1, [%d1+1];", "st.local.u32 [own+2], %r1;",
        "atom.global.add.u64 %d3, [%d1+4], %d3;", "ld.param.u64 %d3, [small_0+4];"}) {
    SmallKernel kernel{.body = access,
                       .variables = ".shared .align 16 .b8 cells[64]; .local .align 8 .b8 own[16];"};
    EXPECT_THAT(kernel.fault(), AllOf(HasSubstr("aligned"), HasSubstr("small.ptx:"), HasSubstr(access)))
        << access;
    EXPECT_EQ(kernel.kind_of_fault, FaultKind::alignment) << access;
  }
}

TEST(PtxMemory, AccessesOutsideAreFaults) {
  const std::pair<const char*, const char*> cases[] = {
      {"ld.global.u32 %r1, [%d1+256];", "0 bytes after the end of input of 256 bytes"},
      {"ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1+-16];", "16 bytes before input"},
      {"mov.u64 %d3, 0; ld.global.u32 %r1, [%d3];", "outside of all allocations"},
      {"ld.u8 %r1, [%d1+300];", "44 bytes after the end of input"},
      {"st.shared.u32 [cells+64], %r0;", "the block has 64 bytes"},
      {"mov.u32 %r3, cells; sub.s32 %r3, %r3, 4; ld.shared.u32 %r1, [%r3];", "the block has 64 bytes"},
      {"mov.u32 %r3, 0; ld.shared.u32 %r1, [%r3];", "the block has 64 bytes"},
      {"ld.local.u32 %r1, [own+16];", "a thread has 16 bytes"},
      {"ld.param.u64 %d3, [small_1+8];", "the kernel has 16 bytes"}};
  for (const auto& [access, why] : cases) {
    SmallKernel kernel{.body = access,
                       .variables = ".shared .align 16 .b8 cells[64]; .local .align 8 .b8 own[16];"};
    EXPECT_THAT(kernel.fault(), HasSubstr(why)) << access;
    EXPECT_EQ(kernel.kind_of_fault, FaultKind::bounds) << access;
  }
}

TEST(PtxMemory, AFaultNamesBlockAndThread) {
  SmallKernel kernel{
      .body = "setp.ne.s32 %p1, %r0, 37; @%p1 bra $end; ld.global.u32 %r1, [%d1+256]; $end: ret;",
      .threads = 64,
      .blocks = 2};
  EXPECT_THAT(kernel.fault(), HasSubstr("block (0, 0, 0), thread (37, 0, 0)"));
  kernel.options.order = Order::descending;
  EXPECT_THAT(kernel.fault(), HasSubstr("block (1, 0, 0), thread (37, 0, 0)"));
}

TEST(PtxMemory, GenericAddressesReachEverySpace) {
  SmallKernel kernel{
      .body =
          "mov.u64 %d3, cells; cvta.shared.u64 %d3, %d3; shl.b32 %r2, %r0, 2; cvt.u64.u32 %d4, %r2; add.s64 "
          "%d3, %d3, %d4;"
          "st.u32 [%d3], %r0; mov.u64 %d5, own; cvta.local.u64 %d5, %d5; st.u32 [%d5+4], %r2; "
          "cvta.to.shared.u64 %d6, %d3;"
          "ld.shared.u32 %r3, [%d6]; ld.local.u32 %r4, [own+4]; add.s32 %r1, %r3, %r4; st.u32 [%d0], %r1;",
      .variables = ".shared .align 4 .b8 cells[128]; .local .align 4 .b8 own[8];"};
  EXPECT_EQ(static_cast<std::uint32_t>(kernel.run()[9]), 45u);
}

TEST(PtxMemory, SharedMemoryBeginsAsPoisonInEveryBlock) {
  SmallKernel kernel{.body = "ld.shared.u32 %r1, [more]; st.global.u32 [%d0], %r1; st.shared.u32 [more], 1;",
                     .variables = ".shared .align 4 .b8 cells[20];",
                     .declarations = ".extern .shared .align 16 .b8 more[];",
                     .threads = 1,
                     .blocks = 2,
                     .dynamic_shared_bytes = 16};
  EXPECT_EQ(static_cast<std::uint32_t>(kernel.run()[1]), 0xa0a0a0a0u);
  // Dynamic shared memory follows the static one, at its alignment: 32 + 16 bytes.
  kernel.body = "st.shared.v4.u32 [more], {%r0, %r0, %r0, %r0}; st.shared.u32 [more+16], %r0;";
  EXPECT_THAT(kernel.fault(), HasSubstr("at byte 48 of shared memory; the block has 48 bytes"));
}

TEST(PtxMemory, ModuleVariablesHaveTheirInitialValues) {
  SmallKernel kernel{.body =
                         "ld.global.u32 %r1, [table+4]; ld.const.u16 %r2, [halves+2]; add.s32 %r1, %r1, %r2; "
                         "ld.global.u32 %r3, [empty];"
                         "add.s32 %r1, %r1, %r3; st.global.u32 [%d0], %r1;",
                     .declarations =
                         ".global .align 4 .u32 table[3] = {1, 20, 3}; .const .align 2 .b16 halves[2] = {5, "
                         "300}; .global .align 4 .b8 empty[4];"};
  EXPECT_EQ(static_cast<std::uint32_t>(kernel.run()[0]), 320u);
}

TEST(PtxAtomics, GiveTheOldValueAndNeverRace) {
  SmallKernel kernel{.body =
                         "atom.global.add.u32 %r2, [%d1], 2; atom.shared.max.u32 %r3, [cells], %r0; "
                         "atom.global.min.s32 %r4, [%d1+4], -5;"
                         "atom.global.cas.b32 %r5, [%d1+8], 0, 7; atom.global.exch.b32 %r6, [%d1+12], 9; "
                         "bar.sync 0; ld.shared.u32 %r1, [cells];"
                         "st.global.u32 [%d0], %r1; st.global.u32 [%d0+4], %r5;",
                     .variables = ".shared .align 4 .u32 cells;",
                     .threads = 64};
  const auto slots = kernel.run();
  EXPECT_EQ(kernel.input[0], 128);
  EXPECT_EQ(kernel.input[4], 0xfb);
  EXPECT_EQ(kernel.input[8], 7);
  EXPECT_EQ(static_cast<std::uint32_t>(slots[3]), 0xa0a0a0a0u);  // the poison is greater than every thread
  EXPECT_EQ(slots[0] >> 32, 0u);
  EXPECT_EQ(slots[1] >> 32, 7u);
}

TEST(PtxAtomics, OfRedHaveNoResult) {
  SmallKernel kernel{.body =
                         "red.global.add.u32 [%d1], 2; red.global.max.s32 [%d1+4], %r0; "
                         "red.shared.min.u32 [cells], %r0; red.global.or.b32 [%d1+8], 5; bar.sync 0; "
                         "ld.shared.u32 %r1, [cells]; st.global.u32 [%d0], %r1;",
                     .variables = ".shared .align 4 .u32 cells;",
                     .threads = 64};
  EXPECT_EQ(static_cast<std::uint32_t>(kernel.run()[0]), 0u);
  EXPECT_EQ(kernel.input[0], 128);
  EXPECT_EQ(kernel.input[4], 63);
  EXPECT_EQ(kernel.input[8], 5);
}

// ---- races ----

TEST(PtxRaces, InGlobalMemoryAreFound) {
  // Every thread writes one word; or reads what its neighbour writes; in a block, or between blocks.
  SmallKernel all{.body = "st.global.u32 [%d1], %r0;"};
  EXPECT_THAT(all.fault(), AllOf(HasSubstr("a race"), HasSubstr("thread 0 of this block")));
  EXPECT_EQ(all.kind_of_fault, FaultKind::race);
  SmallKernel blocks{.body = "st.global.u32 [%d1], %r0;", .threads = 1, .blocks = 2};
  EXPECT_THAT(blocks.fault(), AllOf(HasSubstr("a race"), HasSubstr("thread 0 of block (0, 0, 0)")));
  blocks.body =
      "bar.sync 0; ld.global.u32 %r1, [%d1]; bar.sync 0; setp.ne.s32 %p1, %r62, 1; @%p1 ret; st.global.u32 "
      "[%d1], %r0;";
  for (const Order order : {Order::ascending, Order::descending}) {
    blocks.options.order = order;
    EXPECT_THAT(blocks.fault(), HasSubstr("a race")) << static_cast<int>(order);
  }
  blocks.options.watch_races = false;
  EXPECT_THAT(blocks.fault(), IsEmpty());
}

TEST(PtxRaces, OrderedOrSeparateAccessesAreNone) {
  for (const char* body :
       {"ld.global.u32 %r1, [%d1];",                                                        // all read
        "st.global.u16 [%d0], %r0; st.global.u16 [%d0+2], %r0; ld.global.u32 %r1, [%d0];",  // one's own
        "mul.wide.u32 %d3, %r0, 2; add.s64 %d3, %d3, %d1; st.global.u16 [%d3], %r0;",  // neighbouring halves
        "add.s64 %d3, %d1, 64; cvt.u64.u32 %d4, %r0; add.s64 %d3, %d3, %d4; st.global.u8 [%d3], %r0;",
        "ld.global.u32 %r1, [%d1]; bar.sync 0; setp.ne.s32 %p1, %r0, 9; @%p1 ret; st.global.u32 [%d1], %r1;",
        "st.volatile.global.u32 [%d1], %r0; ld.volatile.global.u32 %r1, [%d1];"}) {
    SmallKernel kernel{.body = body, .threads = 64};
    EXPECT_THAT(kernel.fault(), IsEmpty()) << body;
  }
}

TEST(PtxRaces, ReadersOfEveryWarpAreRemembered) {
  // All threads read; then one of them writes without a barrier, and races with another.
  for (const std::uint32_t writer : {0u, 31u, 32u, 95u}) {
    SmallKernel kernel{
        .body = fmt::format(
            "ld.shared.u32 %r1, [cells]; setp.ne.s32 %p1, %r0, {}; @%p1 ret; st.shared.u32 [cells], %r0;",
            writer),
        .variables = ".shared .align 4 .u32 cells;",
        .threads = 96};
    EXPECT_THAT(kernel.fault(), HasSubstr("a race")) << writer;
    // A barrier of the warp is not enough.
    kernel.body = fmt::format(
        "ld.shared.u32 %r1, [cells]; bar.warp.sync -1; setp.ne.s32 %p1, %r0, {}; @%p1 ret; st.shared.u32 "
        "[cells], %r0;",
        writer);
    EXPECT_THAT(kernel.fault(), HasSubstr("a race")) << writer;
  }
}

TEST(PtxRaces, AnAtomicAndAPlainAccessRace) {
  SmallKernel kernel{
      .body =
          "atom.global.add.u32 %r2, [%d1], 1; setp.ne.s32 %p1, %r0, {}; @%p1 ret; ld.global.u32 %r1, [%d1];"};
  for (const std::uint32_t reader : {0u, 31u}) {
    SmallKernel one = kernel;
    one.body = fmt::format(fmt::runtime(kernel.body), reader);
    EXPECT_THAT(one.fault(), HasSubstr("a race")) << reader;
  }
}

TEST(PtxRaces, OnlyTheLaunchCounts) {
  // Another launch of the same machine may read what the first one wrote.
  DeviceMemory memory;
  Program program(memory);
  program.add("small.ptx", SmallKernel{.body = "mul.wide.u32 %d3, %r0, 4; add.s64 %d3, %d3, %d1; setp.eq.s64 "
                                               "%p1, %d0, %d1; st.global.u32 [%d3], %r0;"}
                               .text());
  std::byte* const data = memory.allocate(256);
  Machine machine(memory, {});
  const void* const parameters[] = {&data, &data};
  for (int launch = 0; launch < 3; ++launch)
    machine.launch(*program.find("small"), {.block_x = launch == 1 ? 16u : 32u}, parameters);
}

// ---- asynchronous copies ----

constexpr const char* stage = ".shared .align 16 .b8 stage[1024];";
/// Thread t copies `valid` of the 16 bytes at input 16 (t mod 8) to its own place.
std::string copying(const std::string& valid) {
  return fmt::format(
      "and.b32 %r2, %r0, 7; mul.wide.u32 %d3, %r2, 16; add.s64 %d3, %d3, %d1; mov.u32 %r3, stage; shl.b32 "
      "%r4, %r0, 4;"
      "add.s32 %r5, %r3, %r4; mov.u32 %r6, {}; cp.async.cg.shared.global [%r5], [%d3], 16, %r6; ",
      valid);
}

TEST(PtxCopies, ArriveWhenTheyAreWaitedFor) {
  SmallKernel kernel{.body = copying("10") +
                             "cp.async.commit_group; cp.async.wait_group 0; ld.shared.u64 %d4, [%r5+8]; "
                             "st.global.u64 [%d0], %d4;",
                     .variables = stage};
  for (std::size_t i = 0; i < 256; ++i) kernel.input[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(kernel.run()[1], 0x0000000000001918u);  // 10 bytes, then zeros
  kernel.body = copying("0") + "cp.async.wait_all; ld.shared.u64 %d4, [%r5]; st.global.u64 [%d0], %d4;";
  EXPECT_EQ(kernel.run()[1], 0u);
}

TEST(PtxCopies, ArriveNoSooner) {
  const auto faults = [](const std::string& more, bool watch = true) {
    SmallKernel kernel{.body = copying("16") + more, .variables = stage, .threads = 64};
    kernel.options.watch_races = watch;
    return kernel.fault();
  };
  const std::string load = "ld.shared.u32 %r1, [%r5]; st.global.u32 [%d0], %r1;", wait = "cp.async.wait_all;";
  EXPECT_THAT(faults(load + wait), HasSubstr("a copy of thread 0 is on its way"));
  EXPECT_THAT(faults("cp.async.commit_group; cp.async.wait_group 1;" + load + wait), HasSubstr("on its way"));
  EXPECT_THAT(faults("cp.async.wait_group 0;" + load + wait), HasSubstr("on its way"));  // it is in no group
  EXPECT_THAT(faults("st.shared.u32 [%r5], %r0;" + wait), HasSubstr("on its way"));
  EXPECT_THAT(faults(wait + load), IsEmpty());
  // Another thread's has to have been waited for by that thread, and then a barrier.
  const std::string others = "xor.b32 %r7, %r4, 16; add.s32 %r7, %r7, %r3; ld.shared.u32 %r1, [%r7];";
  EXPECT_THAT(faults(wait + others), HasSubstr("a race"));
  EXPECT_THAT(faults("bar.sync 0;" + others + wait), HasSubstr("on its way"));
  EXPECT_THAT(faults(wait + "bar.sync 0;" + others), IsEmpty());
  EXPECT_THAT(faults("", false), HasSubstr("a thread ends before a copy"));
  // The copy has what memory holds at the end.
  SmallKernel late{
      .body =
          "setp.ne.s32 %p1, %r0, 0; @%p1 ret;" + copying("16") +
          "st.global.u32 [%d3], 77; cp.async.wait_all; ld.shared.u32 %r1, [%r5]; st.global.u32 [%d0], %r1;",
      .variables = stage};
  EXPECT_EQ(static_cast<std::uint32_t>(late.run()[0]), 77u);
}

TEST(PtxCopies, GroupsAreWaitedForOldestFirst) {
  SmallKernel kernel{.body = copying("16") +
                             "cp.async.commit_group; add.s32 %r8, %r5, 512; cp.async.cg.shared.global [%r8], "
                             "[%d3], 16; cp.async.commit_group;"
                             "cp.async.wait_group 1; ld.shared.u32 %r1, [%r5]; {} cp.async.wait_group 0; "
                             "st.global.u32 [%d0], %r1;",
                     .variables = stage};
  const std::string text = kernel.body;
  kernel.body = fmt::format(fmt::runtime(text), "");
  EXPECT_THAT(kernel.fault(), IsEmpty());
  kernel.body = fmt::format(fmt::runtime(text), "ld.shared.u32 %r9, [%r8];");
  EXPECT_THAT(kernel.fault(), HasSubstr("on its way"));
}

TEST(PtxCopies, CheckTheirAddresses) {
  const std::pair<const char*, const char*> cases[] = {
      {"cp.async.cg.shared.global [%r5+8], [%d3], 16;", "not aligned"},
      {"cp.async.cg.shared.global [%r5], [%d3+8], 16;", "not aligned"},
      {"cp.async.cg.shared.global [%r5+1024], [%d3], 16;", "the block has 1024 bytes"},
      {"cp.async.cg.shared.global [%r5], [%d1+256], 16; cp.async.wait_all;", "after the end of input"}};
  for (const auto& [copy, why] : cases) {
    SmallKernel kernel{.body = copying("16") + "cp.async.wait_all; bar.sync 0;" + copy, .variables = stage};
    EXPECT_THAT(kernel.fault(), HasSubstr(why)) << copy;
  }
}

TEST(PtxDeviceMemory, KnowsItsAllocations) {
  DeviceMemory memory;
  std::byte* const a = memory.allocate(100, "a");
  std::byte* const b = memory.allocate(100, "b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(a[99], std::byte{0xa5});
  const auto address = reinterpret_cast<std::uintptr_t>(a);
  ASSERT_NE(memory.find(address, 100), nullptr);
  EXPECT_EQ(memory.find(address + 50, 50)->begin, a);
  EXPECT_EQ(memory.find(address, 101), nullptr);
  EXPECT_EQ(memory.find(address - 1, 1), nullptr);
  EXPECT_EQ(memory.nearest(address + 50), "at byte 50 of a of 100 bytes");
  EXPECT_EQ(memory.nearest(address + 101), "1 bytes after the end of a of 100 bytes");
  EXPECT_EQ(memory.nearest(reinterpret_cast<std::uintptr_t>(b) - 2), "2 bytes before b of 100 bytes");
  EXPECT_THROW(memory.free(a + 1), std::invalid_argument);
  memory.free(a);
  EXPECT_EQ(memory.find(address, 1), nullptr);
}

}  // namespace
}  // namespace fp16lab::engine::ptx
