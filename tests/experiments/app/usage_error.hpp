// The one line that a wrong configuration is answered with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {

/// What the usage error of `call` says, "no error" where there is none.
template <class Call>
std::string usage_error_of(Call call) {
  try {
    call();
  } catch (const CommandError& error) {
    EXPECT_EQ(error.code, ExitCode::usage);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "one line";
    return error.what();
  }
  return "no error";
}

}  // namespace fp16lab::experiments
