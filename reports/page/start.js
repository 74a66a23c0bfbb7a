// Everything on the page is computed from the JSON in #data.
const data = JSON.parse(at('data').textContent);
startCurves();
startTables();
startTraces();
startExplorer();
