// Lanes that part and meet, barriers, shuffles and votes.
#include "tests/engine/backend/cuda/ptx/small_kernel.hpp"

namespace fp16lab::engine::ptx {
namespace {

constexpr Order orders[] = {Order::ascending, Order::descending, Order::scrambled};

/// Words that all threads left.
std::vector<std::uint32_t> words_of(SmallKernel kernel) {
  kernel.body += " st.global.u32 [%d0], %r1;";
  std::vector<std::uint32_t> words;
  for (const std::uint64_t slot : kernel.run()) words.push_back(static_cast<std::uint32_t>(slot));
  return words;
}

TEST(PtxBranches, LoopsOfDifferentLengthMeetAgain) {
  // The sum of 1 .. thread, and then a vote in which all have to be.
  for (const Order order : orders) {
    SmallKernel kernel{
        .body =
            "mov.u32 %r2, 0; mov.u32 %r3, 0; $loop: setp.ge.u32 %p1, %r3, %r0; @%p1 bra $done;"
            "add.s32 %r3, %r3, 1; add.s32 %r2, %r2, %r3; bra $loop;"
            "$done: vote.sync.ballot.b32 %r4, %p1, 0xffffffff; not.b32 %r4, %r4; add.s32 %r1, %r2, %r4;"};
    kernel.options.order = order;
    const auto words = words_of(kernel);
    for (std::uint32_t thread = 0; thread < 32; ++thread) EXPECT_EQ(words[thread], thread * (thread + 1) / 2);
  }
}

TEST(PtxBranches, BothSidesAreTaken) {
  const auto words =
      words_of({.body = "and.b32 %r2, %r0, 1; setp.eq.s32 %p1, %r2, 0; @!%p1 bra $odd; mov.u32 %r1, 100;"
                        "bra.uni $end; $odd: mov.u32 %r1, 200; $end: add.s32 %r1, %r1, %r0;",
                .threads = 45});
  for (std::uint32_t thread = 0; thread < 45; ++thread)
    EXPECT_EQ(words[thread], (thread % 2 == 0 ? 100 : 200) + thread);
}

TEST(PtxBranches, AUniformOneMustBeTakenByAll) {
  SmallKernel kernel{.body = "setp.eq.s32 %p1, %r0, 3; @%p1 bra.uni $end; $end: ret;"};
  EXPECT_THAT(kernel.fault(), ::testing::HasSubstr("bra.uni that not all active lanes take"));
}

TEST(PtxBranches, ATrapIsAFault) {
  SmallKernel kernel{.body = "setp.ne.s32 %p1, %r0, 3; @%p1 bra $end; trap; $end: ret;"};
  EXPECT_THAT(kernel.fault(), ::testing::AllOf(::testing::HasSubstr("the kernel traps"),
                                               ::testing::HasSubstr("thread (3, 0, 0)")));
  EXPECT_EQ(kernel.kind_of_fault, FaultKind::instruction);
}

TEST(PtxBranches, ExitEndsLanesOnly) {
  SmallKernel kernel{.body = "setp.lt.u32 %p1, %r0, 7; @%p1 exit; mov.u32 %r1, 5; st.global.u32 [%d0], %r1;"};
  const auto slots = kernel.run();
  EXPECT_EQ(slots[6], 0xa5a5a5a5a5a5a5a5u);
  EXPECT_EQ(static_cast<std::uint32_t>(slots[7]), 5u);
}

// Thread t stores t, and reads that of thread n - 1 - t after the barrier.
constexpr const char* reversal =
    "shl.b32 %r2, %r0, 2; mov.u32 %r3, cells; add.s32 %r4, %r3, %r2; st.shared.u32 [%r4], %r0; {}"
    "mov.u32 %r5, %ntid.x; shl.b32 %r5, %r5, 2; add.s32 %r5, %r5, %r3; sub.s32 %r5, %r5, %r2; ld.shared.u32 "
    "%r1, [%r5+-4];";
constexpr const char* cells = ".shared .align 4 .b8 cells[1024];";

TEST(PtxBarriers, OrderAllThreadsOfABlock) {
  for (const Order order : orders) {
    SmallKernel kernel{.body = fmt::format(fmt::runtime(reversal), "bar.sync 0;"),
                       .variables = cells,
                       .threads = 100,
                       .blocks = 3};
    kernel.options.order = order;
    const auto words = words_of(kernel);
    for (std::uint32_t i = 0; i < 300; ++i) EXPECT_EQ(words[i], 99 - i % 100);
  }
}

TEST(PtxBarriers, AMissingOneIsARace) {
  for (const Order order : orders) {
    SmallKernel kernel{.body = fmt::format(fmt::runtime(reversal), ""), .variables = cells, .threads = 64};
    kernel.options.order = order;
    const std::string fault = kernel.fault();
    EXPECT_THAT(fault, ::testing::HasSubstr("a race")) << static_cast<int>(order);
    EXPECT_THAT(fault, ::testing::HasSubstr("ld.shared.u32 %r1, [%r5+-4]"));
    EXPECT_THAT(fault, ::testing::HasSubstr("st.shared.u32 [%r4], %r0"));
  }
}

TEST(PtxBarriers, TwoPlacesAreAFaultThatNamesBoth) {
  // The places belong to two warps, and to two lanes of one.
  for (const char* bound : {"32", "5"}) {
    SmallKernel kernel{
        .body = fmt::format("setp.lt.u32 %p1, %r0, {}; @%p1 bra $first; \nbar.sync 0;\n bra $end; $first: \n"
                            "bar.sync 0;\n $end: ret;",
                            bound),
        .threads = 64};
    const std::string fault = kernel.fault();
    EXPECT_THAT(fault, ::testing::HasSubstr("a barrier at which not all threads arrive"));
    EXPECT_THAT(fault, ::testing::HasSubstr("small.ptx:23"));
    EXPECT_THAT(fault, ::testing::HasSubstr("small.ptx:25"));
  }
}

TEST(PtxBarriers, ThreadsThatHaveEndedAreNotWaitedFor) {
  SmallKernel kernel{.body = "setp.lt.u32 %p1, %r0, 40; @%p1 ret; bar.sync 0; mov.u32 %r1, 1;",
                     .threads = 96};
  const auto words = words_of(kernel);
  EXPECT_EQ(words[39], 0xa5a5a5a5u);
  EXPECT_EQ(words[40], 1u);
}

TEST(PtxBarriers, ReduceAPredicate) {
  for (const std::uint32_t special : {70u, 1000u}) {
    SmallKernel kernel{
        .body = fmt::format("setp.eq.s32 %p2, %r0, {}; bar.red.or.pred %p1, 0, %p2; selp.u32 %r1, 1, 0, %p1;",
                            special),
        .threads = 96};
    for (const std::uint32_t word : words_of(kernel)) EXPECT_EQ(word, special < 96 ? 1u : 0u);
  }
}

TEST(PtxWarpBarriers, OrderTheLanesOfAWarp) {
  const auto words =
      words_of({.body = fmt::format(fmt::runtime(reversal), "bar.warp.sync -1;"), .variables = cells});
  for (std::uint32_t thread = 0; thread < 32; ++thread) EXPECT_EQ(words[thread], 31 - thread);
  // But not those of two.
  SmallKernel two{
      .body = fmt::format(fmt::runtime(reversal), "bar.warp.sync -1;"), .variables = cells, .threads = 64};
  EXPECT_THAT(two.fault(), ::testing::HasSubstr("a race"));
}

TEST(PtxWarpBarriers, LanesThatNeverComeAreAFault) {
  // Lanes 0 .. 3 wait at another place than the others.
  SmallKernel kernel{
      .body =
          "setp.lt.u32 %p1, %r0, 4; @%p1 bra $low; \nbar.warp.sync -1;\n $low: \nbar.warp.sync 0xffffffff;"};
  const std::string fault = kernel.fault();
  EXPECT_THAT(fault, ::testing::HasSubstr("it waits for lane 0"));
  EXPECT_THAT(fault, ::testing::HasSubstr("bar.warp.sync 0xffffffff"));
  SmallKernel stranger{.body = "bar.warp.sync 15;"};
  EXPECT_THAT(stranger.fault(), ::testing::HasSubstr("no member of its own mask"));
}

TEST(PtxWarpBarriers, AlignedInstructionsWantTheWholeWarp) {
  // Some lanes wait for the warp, some have another guard, some have ended.
  const std::pair<const char*, const char*> cases[] = {
      {"setp.lt.u32 %p1, %r0, 4; @%p1 bra $block; \nbar.warp.sync -1;\n $block: \nbar.sync 0;",
       "lane 4 of its warp is at small.ptx:23: 'bar.warp.sync -1;'"},
      {"setp.lt.u32 %p1, %r0, 4; @%p1 bar.sync 0;", "lane 4 of its warp has another guard"},
      {"setp.lt.u32 %p1, %r0, 4; @%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [cells];",
       "lane 4 of its warp has another guard"},
      {"setp.lt.u32 %p1, %r0, 4; @%p1 ret; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [cells];",
       "lane 0 of its warp has ended"}};
  for (const auto& [body, why] : cases) {
    SmallKernel kernel{.body = body, .variables = cells};
    EXPECT_THAT(kernel.fault(), ::testing::HasSubstr(why)) << body;
    EXPECT_EQ(kernel.kind_of_fault, FaultKind::barrier) << body;
  }
}

/// What `shfl` gives lane by lane, where lane i holds 100 + i; the predicate in bit 16.
std::vector<std::uint32_t> shuffled(const std::string& mode, const std::string& b, const std::string& c,
                                    std::uint32_t threads = 32) {
  return words_of({.body = fmt::format("add.s32 %r2, %r0, 100; shfl.sync.{}.b32 %r3|%p1, %r2, {}, {}, -1;"
                                       "selp.u32 %r4, 0x10000, 0, %p1; add.s32 %r1, %r3, %r4;",
                                       mode, b, c),
                   .threads = threads});
}

TEST(PtxShuffles, FollowThePseudoCode) {
  const std::uint32_t in_range = 0x10000;
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    // c = 31: the whole warp; up takes 0 as its clamp.
    EXPECT_EQ(shuffled("bfly", "5", "31")[lane], in_range + 100 + (lane ^ 5));
    EXPECT_EQ(shuffled("down", "3", "31")[lane], lane + 3 < 32 ? in_range + 103 + lane : 100 + lane);
    EXPECT_EQ(shuffled("up", "3", "0")[lane], lane >= 3 ? in_range + 97 + lane : 100 + lane);
    EXPECT_EQ(shuffled("idx", "9", "31")[lane], in_range + 109);
    // Segments of 8: mask 11000 in bits 8 .. 12, clamp 7 of each.
    EXPECT_EQ(shuffled("idx", "9", "0x181f")[lane], in_range + 101 + lane / 8 * 8);
    EXPECT_EQ(shuffled("down", "3", "0x181f")[lane], lane % 8 < 5 ? in_range + 103 + lane : 100 + lane);
    EXPECT_EQ(shuffled("up", "3", "0x1800")[lane], lane % 8 >= 3 ? in_range + 97 + lane : 100 + lane);
    EXPECT_EQ(shuffled("bfly", "8", "0x181f")[lane],
              lane % 16 < 8 ? 100 + lane : in_range + 100 + (lane ^ 8));
  }
}

TEST(PtxShuffles, AnAbsentLaneGivesPoison) {
  const auto words = shuffled("down", "1", "31", 20);
  EXPECT_EQ(words[18], 0x10000u + 119);
  EXPECT_EQ(words[19], 0xa5a6a5a5u);  // the poison, and the predicate's bit
}

TEST(PtxVotes, CountTheActiveLanes) {
  for (const std::uint32_t word :
       words_of({.body = "and.b32 %r2, %r0, 1; setp.eq.s32 %p1, %r2, 0; vote.sync.ballot.b32 %r1, %p1, -1;"}))
    EXPECT_EQ(word, 0x55555555u);
  EXPECT_EQ(
      words_of({.body = "setp.lt.u32 %p1, %r0, 3; vote.sync.ballot.b32 %r1, !%p1, -1;", .threads = 5})[0],
      0x18u);
  EXPECT_EQ(
      words_of(
          {.body = "setp.lt.u32 %p1, %r0, 3; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r1, 1, 0, %p2;"})[9],
      1u);
  EXPECT_EQ(
      words_of(
          {.body = "setp.lt.u32 %p1, %r0, 3; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r1, 1, 0, %p2;"})[0],
      0u);
  // Half of a warp, each half by itself.
  const auto halves = words_of(
      {.body = "setp.lt.u32 %p1, %r0, 16; @%p1 bra $low; vote.sync.ballot.b32 %r1, %p1, 0xffff0000; bra $end;"
               "$low: vote.sync.ballot.b32 %r1, %p1, 0xffff; $end:"});
  EXPECT_EQ(halves[0], 0xffffu);
  EXPECT_EQ(halves[31], 0u);
}

TEST(PtxSpecialRegisters, NameThreadsAndBlocks) {
  const auto words = words_of(
      {.body = "mov.u32 %r1, %laneid; mov.u32 %r2, %lanemask_le; add.s32 %r1, %r1, %r2;", .threads = 40});
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[31], 31u + 0xffffffffu);
  EXPECT_EQ(words[33], 1u + 3u);
  const auto blocks =
      words_of({.body = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mad.lo.s32 %r1, %r1, 10, %r2;",
                .threads = 1,
                .blocks = 4});
  EXPECT_EQ(blocks, (std::vector<std::uint32_t>{4, 14, 24, 34}));
}

}  // namespace
}  // namespace fp16lab::engine::ptx
