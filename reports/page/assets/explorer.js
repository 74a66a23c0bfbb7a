// The gradient explorer: one run, one tensor, a slider for the step and one for the loss scale.
function startExplorer() {
if (!at('histogram')) return;
const allTensors = -1;
// `scale`: what the slider says; `own`: each value at the scale that it was recorded with instead.
const state = {run: 0, tensor: null, step: 0, scale: 1, own: true, heatFollows: false};
let whatIf = null;
const run = () => data.runs[state.run];
// A step has one scale, or one for each tensor.
const recorded = (tensor, step) => {
  const scales = run().scales[step];
  return typeof scales === 'number' ? scales : scales[Math.max(0, tensor)];
};
// All together are those that are rounded: the others have nothing to lose.
const tensorsShown = () => state.tensor === allTensors ? run().tensors.map((name, i) => i).filter(i => run().formats[i].rounds) : [state.tensor];
const ratioOf = (tensor, step, own = state.own) => own ? 1 : state.scale / recorded(tensor, step);
const zonesAt = (tensor, step, own) => zonesOf(run().histograms[step][tensor], ratioOf(tensor, step, own), run().formats[tensor]);
const ownScale = () => {
  const scales = new Set(tensorsShown().map(tensor => recorded(tensor, state.step)));
  return scales.size === 1 ? [...scales][0] : null;
};
const factorText = () => !state.own ? scaleText(state.scale) : ownScale() === null ? 'each tensor’s scale' : scaleText(ownScale());

function showHistogram() {
  const tensors = tensorsShown(), zones = addZones(tensors.map(tensor => zonesAt(tensor, state.step)));
  const ratio = ratioOf(tensors[0], state.step);
  const shifts = tensors.map(tensor => Math.round(Math.log2(ratioOf(tensor, state.step) / ratio)));
  const formats = [...new Map(tensors.map(tensor => [run().formats[tensor].name, run().formats[tensor]])).values()];
  const histograms = tensors.map(tensor => run().histograms[state.step][tensor]);
  drawHistogram(at('histogram'), histograms.length === 1 ? histograms[0] : merge(histograms, shifts), ratio, zones, factorText(), formats);
  fillRates(at('rates'), zones, factorText(), state.own ? addCasts(tensors.map(tensor => run().casts[state.step][tensor])) : null);
  at('formats').textContent = (run().rounded ? '' : 'This run rounded no gradient: these are the rates that FP16 would have. ') + formats.map(formatWords).join(' ');
}
// [values, made zero, made infinite or NaN] of casts; null where there was none.
const addCasts = list => list.reduce((sum, cast) => cast ? (sum ?? [0, 0, 0]).map((n, i) => n + cast[i]) : sum, null);
const formatWords = ({name, tie, normal, overflow, reached, rounds}) => rounds
  ? `${name}, to nearest even: |g| ≤ ${power(tie)} becomes zero (the tie too); values in (${power(tie)}, ${power(tie + 1)}) round up to ${power(tie + 1)}; below ${power(normal)} numbers are subnormal; ${reached ? 'from' : 'above'} ${overflow < 1e6 ? overflow : 'about ' + power(Math.round(Math.log2(overflow)))} on they overflow.`
  : `${name}: stored as computed, nothing is cast.`;
function showHeat() {
  const recordedRates = !state.heatFollows && run().rounded;
  const caption = recordedRates ? 'Share of non-zero gradients that the casts made zero, by tensor and step, as recorded'
    : 'Share of non-zero gradients that would round to zero, by tensor and step, ' + (state.heatFollows ? 'at a loss scale of ' + scaleText(state.scale) : 'in FP16 at the loss scale of each step');
  at('heat-title').textContent = caption;
  const rate = (tensor, step) => {
    if (!recordedRates) return underflowRate(zonesAt(tensor, step, !state.heatFollows));
    const cast = run().casts[step][tensor];
    return cast && cast[0] > 0 ? cast[1] / cast[0] : null;
  };
  drawHeatMap(at('heat'), run(), rate, state, (tensor, step) => {
    Object.assign(state, {tensor, step});
    show();
    remember();
  }, caption);
}

// The page's own arithmetic against the counts that the C++ library put beside the data.
function selfCheck() {
  let compared = 0, wrong = 0;
  for (const r of data.runs)
    for (const [step, log2scale, ...expected] of r.check) {
      const scales = r.scales[step], scaleOf = tensor => typeof scales === 'number' ? scales : scales[tensor];
      const z = addZones(r.histograms[step].map((h, tensor) => r.formats[tensor].rounds ? zonesOf(h, powerOfTwo(log2scale) / scaleOf(tensor), r.formats[tensor]) : zonesOf([0, 0, 0, 0, [], 0, 0], 1, r.formats[tensor])));
      zoneKeys.flatMap(key => z[key]).forEach((n, i) => { ++compared; if (n !== expected[i]) ++wrong; });
    }
  at('self-check').textContent = wrong === 0
    ? `Self-check passed: ${exact(compared)} zone counts computed by this page equal those of the analysis library.`
    : `Self-check FAILED: ${wrong} of ${compared} zone counts differ from those of the analysis library. Do not trust the explorer.`;
  if (wrong > 0) at('self-check').className = 'alarm';
}

function fillRuns() {
  at('run').replaceChildren(...data.workloads.map(w => {
    const group = document.createElement('optgroup');
    group.label = w.name;
    data.runs.forEach((r, i) => { if (r.workload === w.name) group.append(new Option(`${r.label}, seed ${r.seed}`, i)); });
    return group;
  }));
}
// Begin where the story is: the run that underflow hurts most, and the tensor that loses most in it. A verdict against
// a run counts for more than its rate, since some models live well with much underflow.
function worstRun() {
  const harm = r => {
    if (r.fp32) return -1;
    const c = data.workloads.find(w => w.name === r.workload).configurations.find(other => other.label === r.label);
    return (c?.word === 'worse' ? 2 : 0) + (c?.underflow_rate ?? 0);
  };
  return data.runs.reduce((worst, r, i) => harm(r) > harm(data.runs[worst]) ? i : worst, 0);
}
function worstTensor() {
  const rates = run().tensors.map((name, tensor) => underflowRate(zonesAt(tensor, state.step, true)) ?? 0);
  return Math.max(...rates) > 0 ? rates.indexOf(Math.max(...rates)) : allTensors;
}
function chooseRun(index) {
  const oldTensor = state.tensor !== null && state.tensor !== allTensors ? run().tensors[state.tensor] : null;
  state.run = index;
  at('tensor').replaceChildren(...[[allTensors, run().formats.every(f => f.rounds) ? 'all tensors' : 'all tensors that are rounded'], ...run().tensors.map((t, i) => [i, `${t} (${run().kinds[i]}, ${run().rounded ? run().formats[i].name : 'FP32'})`])].map(([value, text]) => new Option(text, value)));
  state.step = run().steps.length - 1;
  if (state.tensor === null) state.tensor = worstTensor();
  else state.tensor = oldTensor === null ? allTensors : Math.max(allTensors, run().tensors.indexOf(oldTensor));
  at('step').max = state.step;
  state.own = true;
  // The slider reaches every scale that was recorded.
  const all = run().scales.flat().map(Math.log2), low = Math.min(data.scales[0], Math.floor(Math.min(...all))), high = Math.max(data.scales[1], Math.ceil(Math.max(...all)));
  Object.assign(at('scale'), {min: low, max: high});
  const every = high - low > 50 ? 4 : 2;
  at('scale-ticks').replaceChildren(...Array.from({length: high - low + 1}, (_, i) => low + i).map(k =>
    Object.assign(document.createElement('span'), {textContent: k % every === 0 ? power(k) : '', className: k % (4 * every) === 0 ? '' : 'minor'})));
  if (hasCharts) whatIf = drawWhatIf(at('what-if-place'), run());
  else at('what-if-place').innerHTML = '<p class="soft">Drawn as a still figure in each workload\'s section above.</p>';
  at('thinned').textContent = run().observed > run().steps.length
    ? `${run().steps.length} of the ${exact(run().observed)} observed steps are in this page, evenly chosen; the lines and the run folder know all of them.` : '';
  const left = data.workloads.filter(w => w.unexplored.length > 0).map(w => `${w.name}: ${w.unexplored.join(', ')}`);
  if (left.length > 0) at('thinned').textContent += ` Left out for room: ${left.join('; ')}.`;
}
function show() {
  if (state.own) state.scale = ownScale() ?? Math.max(...run().scales[state.step]);
  at('run').value = state.run;
  at('tensor').value = state.tensor;
  at('step').value = state.step;
  at('step').setAttribute('aria-valuetext', `step ${run().steps[state.step]}`);
  at('step-value').textContent = run().steps[state.step];
  at('scale').value = Math.round(Math.log2(state.scale));
  const own = ownScale(), words = state.own ? factorText() + ' (as recorded)' : scaleText(state.scale) + ` (recorded with ${own === null ? 'one scale a tensor' : scaleText(own)})`;
  at('scale').setAttribute('aria-valuetext', words);
  at('scale-value').textContent = words;
  at('recorded').setAttribute('aria-pressed', state.own);
  showHistogram();
  showHeat();
  if (whatIf) {
    whatIf.options.plugins.marker.log2Scale = Math.log2(state.scale);
    whatIf.update('none');
  }
}
function readHash() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const number = (key, low, high) => wanted.has(key) && Number.isFinite(Number(wanted.get(key))) ? Math.min(high, Math.max(low, Math.round(Number(wanted.get(key))))) : null;
  const index = number('run', 0, data.runs.length - 1);
  if (index !== null) chooseRun(index);
  if (wanted.has('tensor')) state.tensor = run().tensors.indexOf(wanted.get('tensor'));
  const step = number('step', 0, Infinity);
  if (step !== null) run().steps.forEach((s, i) => { if (s <= step) state.step = i; });
  const k = number('scale', Number(at('scale').min), Number(at('scale').max));
  if (k !== null) Object.assign(state, {scale: powerOfTwo(k), own: false});
}
function remember() {
  const tensor = '&tensor=' + (state.tensor === allTensors ? '' : encodeURIComponent(run().tensors[state.tensor]));
  const scale = state.own ? '' : `&scale=${Math.log2(state.scale)}`;
  history.replaceState(null, '', `#run=${state.run}${tensor}&step=${run().steps[state.step]}${scale}`);
}
const on = (id, event, action) => at(id).addEventListener(event, () => { action(at(id)); show(); remember(); });

fillRuns();
chooseRun(worstRun());
readHash();
on('run', 'change', e => chooseRun(Number(e.value)));
on('tensor', 'change', e => { state.tensor = Number(e.value); });
on('step', 'input', e => { state.step = Number(e.value); });
on('scale', 'input', e => { Object.assign(state, {scale: powerOfTwo(Number(e.value)), own: false}); });
on('recorded', 'click', () => { state.own = true; });
for (const id of ['heat-own', 'heat-slider'])
  at(id).addEventListener('change', () => { state.heatFollows = at('heat-slider').checked; showHeat(); });
window.addEventListener('hashchange', () => { readHash(); show(); });
redrawOnResize(at('histogram'), showHistogram);
redrawOnResize(at('heat'), showHeat);
window.addEventListener('beforeprint', showHeat);
window.addEventListener('afterprint', showHeat);
selfCheck();
show();
}
