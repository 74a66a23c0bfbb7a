// tasks.csv of a sweep's plan (experiments/app/sweep/sweep_task.cpp). The runs' configurations are not there,
// so a list that is accepted ends with the first of them.
#include "experiments/app/exit_code.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  static const std::filesystem::path list = folder.path() / "plan" / "tasks.csv";
  std::filesystem::create_directories(list.parent_path());
  folder.write("plan/tasks.csv", fuzz::text_of({data, size}));
  fuzz::expect_clean<experiments::CommandError>("", [] {
    try {
      if (!experiments::read_written_plan(folder.path()).runs.empty())
        fuzz::refuse("runs", "without configurations");
    } catch (const experiments::CommandError& error) {
      const std::string_view message = error.what();
      if (!message.starts_with(list.string() + ":") && !message.starts_with("--config: "))
        fuzz::refuse("the message does not name the file", message);
      throw;
    }
  });
  return 0;
}
