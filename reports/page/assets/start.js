// Everything on the page is computed from the JSON in #data.
const data = JSON.parse(at('data').textContent);
for (const run of data.runs)
  for (const part of [run, ...run.others])
    for (const histogram of part.histograms.flat()) histogram.splice(5, 2, floatOfBits(histogram[5]), floatOfBits(histogram[6]));
buildPage(data);
startTips();
startTables();
if (data.workloads.length > 0) {
  data.workloads.forEach(chooseCurves);
  chooseWorkload(0);
  if (hasRuns()) {
    startExplorer();
    if (run().workload !== data.workloads[state.workload].name || !data.workloads[state.workload].start) chooseRun(state.run);
  }
  startScreens();
  readAddress();
  show();
  remembers = true;
  window.addEventListener('hashchange', () => {
    if (!location.hash.includes('=')) return;
    readAddress();
    show();
  });
  startScales();
  startPanels();
}
startTraces();
// A page that is written again while runs go on is loaded again; the address keeps what is looked at.
if (at('follow')) setTimeout(() => location.reload(), 1000 * Number(at('follow').dataset.seconds));
