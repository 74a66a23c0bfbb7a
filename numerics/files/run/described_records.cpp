#include "numerics/files/run/op_count.hpp"
#include "numerics/files/run/record.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_schema.hpp"

namespace fp16lab {

namespace {
template <DescribedRecord... Records>
std::vector<RecordDescription> descriptions_of() {
  return {description_of<Records>()...};
}
}  // namespace

std::vector<RecordDescription> described_records() {
  const std::vector<RecordDescription> described =
      descriptions_of<Manifest, RunIdentity, Resumption, BackendRecord, RankRecord, DataFile, RunMemory,
                      StepRow, EvaluationRow, HistogramRow, OverflowRow, RescueRow, CulpritRow, RecipeRow,
                      CulpritOperandRow, ReplayFile, ReplayBand, ReplayedPolicy, ReplaySummaryRow,
                      ReplayTraceRow, OpCount>();
  std::vector<RecordDescription> records;
  for (const RunFileName& file : run_folder_files) {
    const std::size_t before = records.size();
    for (const RecordDescription& record : described)
      if (record.file == file.name || record.file.starts_with(std::string(file.name) + ":")) {
        records.push_back(record);
        if (record.file == file.name) records.back().what = file.what;
      }
    if (records.size() == before)
      records.push_back(
          {.file = std::string(file.name) + (file.is_folder ? "/" : ""), .what = std::string(file.what)});
  }
  return records;
}

}  // namespace fp16lab
