// Everything on the page is computed from the JSON in #data.
const data = JSON.parse(at('data').textContent);
for (const run of data.runs)
  for (const histogram of run.histograms.flat()) histogram.splice(5, 2, floatOfBits(histogram[5]), floatOfBits(histogram[6]));
startCurves();
startTables();
startTraces();
startExplorer();
