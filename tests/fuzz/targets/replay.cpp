// replay.json (numerics/files/run/replay_file.hpp). What is accepted must come back from its own text.
#include "numerics/files/run/replay_file.hpp"

#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  input.replace({data, size});
  fuzz::expect_clean(input.path().string() + ": ", [] {
    const std::string text = to_json(read_replay(input.path()));
    if (to_json(parse_replay(text)) != text) fuzz::refuse("the text of what was read reads otherwise", text);
  });
  return 0;
}
