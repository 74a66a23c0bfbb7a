// The readers of run folders (numerics/files/run/run_folder.hpp, run_resume.hpp). The first byte of an input
// chooses the file that its rest becomes; the others are those of a small sound run.
#include "numerics/files/run/run_folder.hpp"

#include <array>

#include "tests/fuzz/small_run.hpp"
#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  static const bool sound = [] {
    for (const auto& [name, content] : fuzz::small_run) folder.write(name, content);
    const RunFolder run = read_run_folder(folder.path());
    (void)read_histograms(folder.path());
    (void)read_overflows(folder.path());
    (void)read_culprits(folder.path());
    (void)find_cut(folder.path(), 2, run.steps.at(1).state_hash);
    return true;
  }();
  static std::size_t damaged = 0;
  if (!sound || size == 0) return 0;
  const std::size_t chosen = data[0] % fuzz::small_run.size();
  if (chosen != damaged) folder.write(fuzz::small_run[damaged].first, fuzz::small_run[damaged].second);
  damaged = chosen;
  const std::string_view name = fuzz::small_run[chosen].first;
  folder.write(name, fuzz::text_of({data + 1, size - 1}));
  const std::string path = folder.path().string();  // messages name files of the folder
  if (name == run_file::histograms)
    fuzz::expect_clean(path, [] { (void)read_histograms(folder.path()); });
  else if (name == run_file::overflows)
    fuzz::expect_clean(path, [] { (void)read_overflows(folder.path()); });
  else if (name == run_file::culprits)
    fuzz::expect_clean(path, [] { (void)read_culprits(folder.path()); });
  else
    fuzz::expect_clean(path, [] { (void)read_run_folder(folder.path()); });
  fuzz::expect_clean(path, [] { (void)find_cut(folder.path(), 2, 0x0123456789abcdef); });
  return 0;
}
