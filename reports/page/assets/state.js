// What the reader looks at: one run of one workload, a kind of its tensors, one of them or all, a step, and a loss scale.
// The address holds it, by names, so that a link shows the same.
const allTensors = -1;
// `scale`: the sliders' scale; `own`: each value at the scale that it was recorded with instead.
const state = {workload: 0, run: 0, kind: 'gradients', tensor: allTensors, step: 0, scale: 1, own: true, heatFollows: false, curves: 0};
const hasRuns = () => data.runs.length > 0;
const run = () => data.runs[state.run];
const group = () => state.kind === 'gradients' ? run() : run().others.find(o => o.observed === state.kind);
const runsOf = name => data.runs.map((r, i) => i).filter(i => data.runs[i].workload === name);
// Loss scales move gradients and nothing else.
const scalable = () => state.kind === 'gradients';
const namesOfZones = () => state.kind === 'updates' ? updateZoneNames : zoneNames;

// A step has one scale, or one for each tensor.
const recorded = (tensor, step) => {
  const scales = group().scales[step];
  return typeof scales === 'number' ? scales : scales[Math.max(0, tensor)];
};
// All together are those that are rounded: the others have nothing to lose.
const tensorsShown = () => state.tensor === allTensors ? group().tensors.map((name, i) => i).filter(i => group().formats[i].rounds) : [state.tensor];
const ratioOf = (tensor, step, own = state.own) => own ? 1 : state.scale / recorded(tensor, step);
const zonesAt = (tensor, step, own) => zonesOf(group().histograms[step][tensor], ratioOf(tensor, step, own), group().formats[tensor]);
const ownScale = () => {
  const scales = new Set(tensorsShown().map(tensor => recorded(tensor, state.step)));
  return scales.size === 1 ? [...scales][0] : null;
};
const factorText = () => !state.own ? scaleText(state.scale) : ownScale() === null ? 'each tensor’s scale' : scaleText(ownScale());
const spokenName = name => name === 'loss.prediction' ? 'loss.prediction (dL/dy)' : name;
const tensorName = () => state.tensor === allTensors ? 'all tensors' : spokenName(group().tensors[state.tensor]);
// The chosen values as one histogram, brought to the first one's scale.
function chosenValues() {
  const tensors = tensorsShown(), ratio = ratioOf(tensors[0], state.step), histograms = tensors.map(tensor => group().histograms[state.step][tensor]);
  const shifts = tensors.map(tensor => Math.round(Math.log2(ratioOf(tensor, state.step) / ratio)));
  const formats = [...new Map(tensors.map(tensor => [group().formats[tensor].name, group().formats[tensor]])).values()];
  return {tensors, ratio, formats, histogram: histograms.length === 1 ? histograms[0] : merge(histograms, shifts), zones: addZones(tensors.map(tensor => zonesAt(tensor, state.step)))};
}
// The slider reaches every scale that was recorded.
function scaleEnds() {
  const all = run().scales.flat().map(Math.log2);
  return [Math.min(data.scales[0], Math.floor(Math.min(...all))), Math.max(data.scales[1], Math.ceil(Math.max(...all)))];
}

const views = [];  // functions that show the state
let remembers = false;
function show() {
  if (hasRuns() && state.own) state.scale = ownScale() ?? Math.max(...[group().scales[state.step]].flat());
  views.forEach(view => view());
  if (remembers) remember();
}

function chooseRun(index) {
  const names = hasRuns() && group() ? group().tensors : [], old = state.tensor === allTensors ? null : names[state.tensor];
  state.run = index;
  if (!group()) state.kind = 'gradients';
  state.tensor = old === null ? allTensors : Math.max(allTensors, group().tensors.indexOf(old));
  state.step = group().steps.length - 1;
  state.own = true;
}
function chooseKind(kind) {
  state.kind = kind;
  Object.assign(state, {tensor: 0, step: group().steps.length - 1, own: true});
}
// The data name the run and the tensor with which each workload begins.
function chooseWorkload(index) {
  state.workload = index;
  const {start} = data.workloads[index];
  if (!start) return;
  Object.assign(state, {run: start[0], kind: 'gradients', own: true, tensor: start[1]});
  state.step = run().steps.length - 1;
}

function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1)), text = key => wanted.get(key);
  const workload = data.workloads.findIndex(w => w.name === text('workload'));
  if (workload >= 0) chooseWorkload(workload);
  if (wanted.has('curves')) state.curves = Math.max(0, Number(text('curves')) || 0);
  if (!hasRuns() || !wanted.has('run')) return;
  const found = runsOf(data.workloads[state.workload].name).filter(i => data.runs[i].label === text('run'));
  if (found.length === 0) return;
  chooseRun(found.find(i => String(data.runs[i].seed) === text('seed')) ?? found[0]);
  if (text('kind') !== state.kind && run().others.some(o => o.observed === text('kind'))) chooseKind(text('kind'));
  if (wanted.has('tensor')) state.tensor = group().tensors.indexOf(text('tensor'));
  const step = Number(text('step'));
  if (wanted.has('step') && Number.isFinite(step)) group().steps.forEach((s, i) => { if (s <= step) state.step = i; });
  const k = Number(text('scale')), [low, high] = scaleEnds();
  if (wanted.has('scale') && Number.isInteger(k)) Object.assign(state, {scale: powerOfTwo(Math.min(high, Math.max(low, k))), own: false});
}
function remember() {
  const told = new URLSearchParams({workload: data.workloads[state.workload].name});
  if (state.curves > 0) told.set('curves', state.curves);
  if (hasRuns() && run().workload === data.workloads[state.workload].name) {
    for (const [key, value] of Object.entries({run: run().label, seed: run().seed, kind: state.kind, tensor: state.tensor === allTensors ? '' : group().tensors[state.tensor], step: group().steps[state.step]})) told.set(key, value);
    if (!state.own) told.set('scale', Math.log2(state.scale));
  }
  history.replaceState(null, '', '#' + told);
}
const setScale = k => Object.assign(state, {scale: powerOfTwo(k), own: false});

// A slider of the loss scale, its words and its ticks.
function scaleSlider(slider, output, ownButton, ticks) {
  slider.addEventListener('input', () => {
    setScale(Number(slider.value));
    show();
  });
  ownButton.addEventListener('click', () => {
    state.own = true;
    show();
  });
  return () => {
    const [low, high] = scaleEnds();
    if (Number(slider.min) !== low || Number(slider.max) !== high || ticks.childElementCount === 0) {
      Object.assign(slider, {min: low, max: high});
      const every = high - low > 50 ? 4 : 2;
      ticks.replaceChildren(...Array.from({length: high - low + 1}, (_, i) => low + i).map(k => element('span', {textContent: k % every === 0 ? power(k) : '', className: k % (4 * every) === 0 ? '' : 'minor'})));
    }
    const own = ownScale(), said = state.own ? factorText() + ' (as recorded)' : scaleText(state.scale) + ` (recorded with ${own === null ? 'one scale a tensor' : scaleText(own)})`;
    slider.value = Math.round(Math.log2(state.scale));
    slider.setAttribute('aria-valuetext', said);
    output.textContent = said;
    ownButton.setAttribute('aria-pressed', state.own);
  };
}
