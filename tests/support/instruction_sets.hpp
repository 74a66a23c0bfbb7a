// Running a check once for every instruction set that the build contains and this CPU has, not only the best
// one.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>

namespace fp16lab::testing_support {

template <class Check>
void for_each_instruction_set(const Check& check) {
  int targets = 0;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    SCOPED_TRACE(hwy::TargetName(target));
    check();
    ++targets;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  EXPECT_GE(targets, 1);
}

}  // namespace fp16lab::testing_support
