// The message of a call that must fail.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace fp16lab::testing_support {

/// The message of the exception that `call` threw; a test failure if it threw nothing.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "no exception";
  return {};
}

}  // namespace fp16lab::testing_support
