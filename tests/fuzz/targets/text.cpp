// Text for language models (engine/data/text.hpp): any bytes but none; symbols must give them back.
#include "engine/data/text.hpp"

#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  input.replace({data, size});
  fuzz::expect_clean("", [&] {
    for (const engine::data::Tokens tokens : every<engine::data::Tokens>) {
      const engine::data::Text text =
          engine::data::load_text({.file = input.path(), .chosen_by = "data.path"}, tokens);
      if (engine::data::bytes_of(text, text.symbols) != fuzz::text_of({data, size}))
        fuzz::refuse("symbols do not give back the text", input.path().string());
    }
  });
  return 0;
}
