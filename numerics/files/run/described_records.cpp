#include "numerics/files/run/record.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_schema.hpp"

namespace fp16lab {

std::vector<RecordDescription> described_records() {
  std::vector<RecordDescription> described{
      description_of<Manifest>(),       description_of<RunIdentity>(),
      description_of<Resumption>(),     description_of<BackendRecord>(),
      description_of<RankRecord>(),     description_of<DataFile>(),
      description_of<RunMemory>(),      description_of<StepRow>(),
      description_of<EvaluationRow>(),  description_of<HistogramRow>(),
      description_of<OverflowRow>(),    description_of<RescueRow>(),
      description_of<CulpritRow>(),     description_of<CulpritOperandRow>(),
      description_of<ReplayFile>(),     description_of<ReplayBand>(),
      description_of<ReplayedPolicy>(), description_of<ReplaySummaryRow>(),
      description_of<ReplayTraceRow>()};
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
